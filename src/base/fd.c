#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void stk_fd_enter(struct stk_ledger *ledger, int fd, const char *owner,
                  const char *site)
{
    stk_ledger_add(ledger, STK_RES_FILE, (uint64_t)(unsigned)fd, 0, owner,
                   site);
}

enum pen_status stk_fd_dup(struct stk_ledger *ledger, int fd, const char *owner,
                           const char *site, int *out, struct pen_error *err)
{
    *out = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (*out < 0) {
        const int why = errno;
        return pen_error_set(err, PEN_E_IO, why, owner,
                             "descriptor %d could not be duplicated: %s", fd,
                             strerror(why));
    }
    stk_fd_enter(ledger, *out, owner, site);
    return PEN_OK;
}

void stk_fd_close(struct stk_ledger *ledger, int *fd)
{
    if (*fd < 0)
        return;
    stk_ledger_remove(ledger, STK_RES_FILE, (uint64_t)(unsigned)*fd, 0);
    close(*fd);
    *fd = -1;
}
