// Chooses the build of the CPU twins. The compiler's tables are filled in when
// the program is loaded, so asking them costs a load and no state of ours.

#include "cpu.h"

bool stk_cpu_has_v3(void)
{
#ifdef __clang__
    // clang 14 does not know the level. No processor has these without the
    // rest (lzcnt, movbe, f16c).
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
#else
    return __builtin_cpu_supports("x86-64-v3");
#endif
}

void stk_cpu_convert(const struct penk_convert *args, int32_t row0,
                     int32_t row1)
{
    const bool bayer = args->src_format >= PENK_BAYERBG8;
    if (bayer && stk_cpu_has_v3())
        stk_cpu_demosaic_v3(args, row0, row1);
    else if (bayer)
        stk_cpu_demosaic_base(args, row0, row1);
    else if (stk_cpu_has_v3())
        stk_cpu_convert_v3(args, row0, row1);
    else
        stk_cpu_convert_base(args, row0, row1);
}

void stk_cpu_resize(const struct penk_resize *args, int32_t row0, int32_t row1)
{
    if (stk_cpu_has_v3())
        stk_cpu_resize_v3(args, row0, row1);
    else
        stk_cpu_resize_base(args, row0, row1);
}

void stk_cpu_blur(const struct penk_blur *args, int32_t row0, int32_t row1)
{
    if (stk_cpu_has_v3())
        stk_cpu_blur_v3(args, row0, row1);
    else
        stk_cpu_blur_base(args, row0, row1);
}
