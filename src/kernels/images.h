#ifndef STK_IMAGES_H
#define STK_IMAGES_H

// The kernels of the library: one image per .cu file of this folder. The
// entries' numbers are in the .kern.h files (PENK_KERNEL_...).

#include <penstock/kernel.h>

extern const struct pen_kernel_image stk_image_convert;
extern const struct pen_kernel_image stk_image_resize;
extern const struct pen_kernel_image stk_image_blur;

// All of them, NULL-ended.
extern const struct pen_kernel_image *const stk_images[];

#endif  // STK_IMAGES_H
