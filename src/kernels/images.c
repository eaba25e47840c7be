#include "images.h"

const struct pen_kernel_image *const stk_images[] = {
    &stk_image_convert,
    &stk_image_resize,
    &stk_image_blur,
    NULL,
};
