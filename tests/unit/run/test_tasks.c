// Tasks on threads: no wake is lost, one thread at a time, an end.

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "alloc_fail.h"
#include "pen_test.h"

#include "src/base/str.h"
#include "src/run/tasks.h"

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s", #expr, err.text);                               \
    } while (0)

// Counts what it was given; done when it has all.
struct counter {
    struct stk_task task;
    _Atomic uint32_t given, inside;
    uint32_t taken, all, runs;
    struct counter *next;
    bool handed;  // wake the next one on the same worker
};

static enum stk_run counter_run(struct stk_task *task)
{
    struct counter *c = (struct counter *)task;
    assert_int_equal(atomic_fetch_add(&c->inside, 1), 0);
    c->runs++;
    enum stk_run next = STK_RUN_WAIT;
    if (atomic_load(&c->given) > c->taken) {
        c->taken++;
        if (c->next) {
            atomic_fetch_add(&c->next->given, 1);
            if (c->handed)
                stk_task_wake_next(&c->next->task);
            else
                stk_task_wake(&c->next->task);
        }
        next = STK_RUN_MORE;
    }
    if (c->taken == c->all)
        next = STK_RUN_DONE;
    atomic_fetch_sub(&c->inside, 1);
    return next;
}

static void chain(uint32_t workers, bool handed, unsigned blocking)
{
    enum { LENGTH = 8, ALL = 2000 };
    struct counter c[LENGTH] = { 0 };
    struct stk_sched *s = NULL;
    struct stk_ledger *ledger = stk_ledger_create(true);
    OK(stk_sched_create(workers, ledger, &s, &err));
    for (unsigned i = 0; i < LENGTH; i++) {
        c[i].task.run = counter_run;
        c[i].task.blocks = (blocking >> i) & 1;
        c[i].all = ALL;
        c[i].next = i + 1 < LENGTH ? &c[i + 1] : NULL;
        c[i].handed = handed;
        stk_sched_add(s, &c[i].task);
    }
    OK(stk_sched_start(s, &err));
    const uint32_t own = (uint32_t)__builtin_popcount(blocking & 0xff);
    assert_true(stk_sched_threads(s) <= LENGTH);
    assert_true(stk_sched_threads(s) >= own);
    for (unsigned i = 0; i < ALL; i++) {
        atomic_fetch_add(&c[0].given, 1);
        stk_task_wake(&c[0].task);
    }
    assert_true(stk_sched_wait(s, -1));
    for (unsigned i = 0; i < LENGTH; i++) {
        assert_int_equal(c[i].taken, ALL);
        assert_true(stk_task_done(&c[i].task));
        stk_task_wake(&c[i].task);  // no effect any more
    }
    struct stk_ledger_totals t;
    stk_ledger_totals(ledger, STK_RES_THREAD, &t);
    assert_int_equal(t.added, stk_sched_threads(s));
    stk_sched_destroy(&s);
    assert_null(s);
    stk_ledger_totals(ledger, STK_RES_THREAD, &t);
    assert_int_equal(t.live, 0);
    stk_ledger_destroy(&ledger);
}

PEN_TEST(no_wake_is_lost_and_a_task_runs_on_one_thread_at_a_time)
{
    for (uint32_t workers = 0; workers < 5; workers++) {
        chain(workers, false, 0);
        chain(workers, true, 0);
        chain(workers, true, 0x55);
        chain(workers, false, 0xff);
    }
}

// An idle task is not run: nobody polls.
PEN_TEST(a_task_that_waits_is_not_run_until_somebody_wakes_it)
{
    struct counter c = { .task = { .run = counter_run }, .all = 1 };
    struct stk_sched *s = NULL;
    OK(stk_sched_create(2, NULL, &s, &err));
    stk_sched_add(s, &c.task);
    OK(stk_sched_start(s, &err));
    assert_false(stk_sched_wait(s, stk_now() + 20000000));
    assert_int_equal(c.runs, 1);
    atomic_store(&c.given, 1);
    stk_task_wake(&c.task);
    assert_true(stk_sched_wait(s, -1));
    assert_int_equal(c.runs, 2);
    stk_sched_destroy(&s);
}

// More workers than tasks of the pool are not started.
PEN_TEST(threads_are_started_only_for_tasks_there_are)
{
    struct counter c[3] = { 0 };
    struct stk_sched *s = NULL;
    OK(stk_sched_create(16, NULL, &s, &err));
    for (unsigned i = 0; i < 3; i++) {
        c[i].task.run = counter_run;
        c[i].task.blocks = i == 0;
        stk_sched_add(s, &c[i].task);
    }
    OK(stk_sched_start(s, &err));
    assert_int_equal(stk_sched_threads(s), 3);
    assert_true(stk_sched_wait(s, -1));
    stk_sched_destroy(&s);
}

PEN_TEST(a_scheduler_without_tasks_ends_at_once)
{
    struct stk_sched *s = NULL;
    OK(stk_sched_create(2, NULL, &s, &err));
    OK(stk_sched_start(s, &err));
    assert_true(stk_sched_wait(s, 0));
    stk_sched_destroy(&s);
    stk_sched_destroy(&s);
}

static _Atomic int left;

static void note_left(void *cookie)
{
    atomic_fetch_add(&left, *(int *)cookie);
}

struct sleeper {
    struct stk_task task;
    _Atomic int entered, go;
};

static enum stk_run sleeper_run(struct stk_task *task)
{
    struct sleeper *s = (struct sleeper *)task;
    atomic_store(&s->entered, 1);
    while (!atomic_load(&s->go))
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return STK_RUN_DONE;
}

PEN_TEST(an_abandoned_scheduler_goes_with_its_last_thread)
{
    for (unsigned blocks = 0; blocks < 2; blocks++) {
        struct sleeper stuck = { .task = { .run = sleeper_run,
                                           .blocks = blocks } };
        struct counter other = { .task = { .run = counter_run }, .all = 0 };
        struct stk_ledger *ledger = stk_ledger_create(true);
        struct stk_sched *s = NULL;
        int one = 1;
        atomic_store(&left, 0);
        OK(stk_sched_create(2, ledger, &s, &err));
        stk_sched_add(s, &stuck.task);
        stk_sched_add(s, &other.task);
        OK(stk_sched_start(s, &err));
        while (!atomic_load(&stuck.entered) || !stk_task_done(&other.task))
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        assert_false(stk_sched_wait(s, stk_now() + 1000000));
        assert_true(stk_sched_abandon(s, note_left, &one));
        assert_int_equal(atomic_load(&left), 0);
        atomic_store(&stuck.go, 1);
        for (unsigned i = 0; i < 20000 && !atomic_load(&left); i++)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        assert_int_equal(atomic_load(&left), 1);
        assert_true(stk_task_done(&stuck.task));
        struct stk_ledger_totals t;
        stk_ledger_totals(ledger, STK_RES_THREAD, &t);
        assert_int_equal(t.live, 0);
        stk_ledger_destroy(&ledger);
    }
}

PEN_TEST(start_unwinds_from_every_failed_allocation)
{
    for (unsigned nth = 1;; nth++) {
        struct counter c[20] = { 0 };
        struct stk_ledger *ledger = stk_ledger_create(true);
        struct stk_sched *s = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm_thread(nth, false);
        enum pen_status st = stk_sched_create(2, NULL, &s, &err);
        for (unsigned i = 0; i < 20 && st == PEN_OK; i++) {
            c[i].task.run = counter_run;
            c[i].task.blocks = i & 1;
            stk_sched_add(s, &c[i].task);
        }
        if (st == PEN_OK)
            st = stk_sched_start(s, &err);
        const bool failed = pen_alloc_fail_disarm();
        if (!failed) {
            assert_int_equal(st, PEN_OK);
            assert_true(stk_sched_wait(s, -1));
        } else {
            assert_int_equal(st, PEN_E_NOMEM);
            assert_int_equal(err.status, st);
            assert_true(err.text[0]);
        }
        stk_sched_destroy(&s);
        stk_ledger_destroy(&ledger);
        if (!failed)
            break;
    }
}

PEN_TEST_MAIN(PEN_CASE(no_wake_is_lost_and_a_task_runs_on_one_thread_at_a_time),
              PEN_CASE(a_task_that_waits_is_not_run_until_somebody_wakes_it),
              PEN_CASE(threads_are_started_only_for_tasks_there_are),
              PEN_CASE(a_scheduler_without_tasks_ends_at_once),
              PEN_CASE(an_abandoned_scheduler_goes_with_its_last_thread),
              PEN_CASE(start_unwinds_from_every_failed_allocation))
