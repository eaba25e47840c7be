// All functions of the list, refusing; those of fake_driver.c take precedence.

#include "src/gpu/cuda_abi.h"

#define X(need, name, symbol, params)                                          \
    __attribute__((weak, visibility("default")))                               \
    CUresult name params __asm__(symbol);                                      \
    CUresult name params                                                       \
    {                                                                          \
        return CUDA_ERROR_NOT_SUPPORTED;                                       \
    }
#include "src/gpu/driver_list.h"
#undef X
