// src/gpu/cuda_abi.h and driver_list.h against NVIDIA's cuda.h, line by line.
// Only where a toolkit is; this file therefore includes cuda.h and of our
// headers only the lists.

#include "pen_test.h"

#ifdef HAVE_CUDA_H

#include <cuda.h>

#define STK_CUDA_ABI_LISTS_ONLY
#include "src/gpu/cuda_abi.h"

// cuda.h up to 12 maps cuDeviceGetUuid to the first version, whose answer for
// a slice of a divided GPU is the whole GPU's; we name the second outright,
// as cuda.h 13 does.
struct exception {
    const char *name, *symbol, *in_cuda_h;
};
static const struct exception exceptions[] = {
#if CUDA_VERSION < 13000
    { "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetUuid" },
#endif
    { NULL, NULL, NULL },
};

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

struct value {
    const char *name;
    long long ours, theirs;
};

static void compare(const struct value *values, size_t count)
{
    unsigned different = 0;
    for (size_t i = 0; i < count; i++) {
        if (values[i].ours != values[i].theirs) {
            print_message("# %s: ours %lld, cuda.h %lld\n", values[i].name,
                          values[i].ours, values[i].theirs);
            different++;
        }
    }
    assert_int_equal(different, 0);
}
#define COMPARE(values) compare(values, sizeof(values) / sizeof((values)[0]))

PEN_TEST(every_enumerator_has_the_value_of_cuda_h)
{
    static const struct value values[] = {
#define X(name, value) { #name, value, name },
        STK_CU_RESULTS(X) STK_CU_ATTRIBUTES(X) STK_CU_MEMORYTYPES(X)
            STK_CU_MEM_LOCATIONS(X) STK_CU_MEM_ALLOCATIONS(X)
                STK_CU_MEM_HANDLES(X) STK_CU_MEM_ACCESSES(X)
                    STK_CU_MEM_GRANULARITIES(X) STK_CU_MEM_RANGE_HANDLES(X)
                        STK_CU_EXTERNAL_HANDLES(X)
#undef X
    };
    COMPARE(values);
}

PEN_TEST(every_flag_has_the_value_of_cuda_h)
{
    static const struct value values[] = {
#define X(name, value) { #name, value, name },
        STK_CU_CONSTANTS(X)
#undef X
    };
    COMPARE(values);
}

PEN_TEST(every_type_has_the_size_of_cuda_h)
{
    static const struct value values[] = {
#define X(type, size) { #type, size, sizeof(type) },
        STK_CU_TYPES(X)
#undef X
    };
    COMPARE(values);
}

PEN_TEST(every_field_has_the_offset_of_cuda_h)
{
    static const struct value values[] = {
#define X(type, field, offset)                                                 \
    { #type "." #field, offset, offsetof(type, field) },
        STK_CU_FIELDS(X)
#undef X
    };
    COMPARE(values);
}

PEN_TEST(every_function_has_the_type_of_cuda_h)
{
#define X(need, name, symbol, params)                                          \
    typedef CUresult CUDAAPI abi_##name params;
#include "src/gpu/driver_list.h"
#undef X
    static const struct value values[] = {
#define X(need, name, symbol, params)                                          \
    { #name, 1, __builtin_types_compatible_p(abi_##name, __typeof__(name)) },
#include "src/gpu/driver_list.h"
#undef X
    };
    COMPARE(values);
}

PEN_TEST(every_symbol_is_the_one_that_cuda_h_maps_the_name_to)
{
    static const struct {
        const char *name, *ours, *theirs;
    } symbols[] = {
#define X(need, name, symbol, params) { #name, symbol, STRING(name) },
#include "src/gpu/driver_list.h"
#undef X
    };
    unsigned different = 0;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        const char *expected = symbols[i].theirs;
        for (const struct exception *e = exceptions; e->name; e++) {
            if (strcmp(e->name, symbols[i].name) == 0) {
                assert_string_equal(e->in_cuda_h, expected);
                expected = e->symbol;
            }
        }
        if (strcmp(symbols[i].ours, expected) != 0) {
            print_message("# %s: ours %s, cuda.h %s\n", symbols[i].name,
                          symbols[i].ours, expected);
            different++;
        }
    }
    assert_int_equal(different, 0);
}

PEN_TEST_MAIN(PEN_CASE(every_enumerator_has_the_value_of_cuda_h),
              PEN_CASE(every_flag_has_the_value_of_cuda_h),
              PEN_CASE(every_type_has_the_size_of_cuda_h),
              PEN_CASE(every_field_has_the_offset_of_cuda_h),
              PEN_CASE(every_function_has_the_type_of_cuda_h),
              PEN_CASE(every_symbol_is_the_one_that_cuda_h_maps_the_name_to))

#else

PEN_TEST(the_abi_is_that_of_cuda_h)
{
    PEN_SKIP("no cuda.h of CUDA 13 or newer is installed");
}

PEN_TEST_MAIN(PEN_CASE(the_abi_is_that_of_cuda_h))

#endif
