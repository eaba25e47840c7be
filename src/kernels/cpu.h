#ifndef STK_CPU_H
#define STK_CPU_H

// The two builds of each CPU twin (files x.cpu.c). Callers use the functions
// of ops.h, which choose; tests compare the two.

#include "ops.h"

// Whether the processor has all of x86-64-v3 that compilers make use of.
bool stk_cpu_has_v3(void);

void stk_cpu_convert_base(const struct penk_convert *args, int32_t row0,
                          int32_t row1);
void stk_cpu_convert_v3(const struct penk_convert *args, int32_t row0,
                        int32_t row1);
void stk_cpu_demosaic_base(const struct penk_convert *args, int32_t row0,
                           int32_t row1);
void stk_cpu_demosaic_v3(const struct penk_convert *args, int32_t row0,
                         int32_t row1);
void stk_cpu_resize_base(const struct penk_resize *args, int32_t row0,
                         int32_t row1);
void stk_cpu_resize_v3(const struct penk_resize *args, int32_t row0,
                       int32_t row1);
void stk_cpu_blur_base(const struct penk_blur *args, int32_t row0,
                       int32_t row1);
void stk_cpu_blur_v3(const struct penk_blur *args, int32_t row0, int32_t row1);

#endif  // STK_CPU_H
