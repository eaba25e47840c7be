#ifndef STK_MODULES_H
#define STK_MODULES_H

#include <penstock/module.h>

// The built-in classes, one per file of this folder. Adding a module means
// its file and one line here.
#define STK_MODULES(X)                                                         \
    X(file_reader)                                                             \
    X(file_writer)                                                             \
    X(test_signal)                                                             \
    X(stat_sink)                                                               \
    X(image_decoder_cv)                                                        \
    X(image_encoder_cv)                                                        \
    X(color_conversion)                                                        \
    X(image_resize_cv)                                                         \
    X(gaussian_blur_cv)                                                        \
    X(cuda_mem_copy)                                                           \
    X(mem_type_conversion)                                                     \
    X(ccnppi)                                                                  \
    X(resize_nppi)                                                             \
    X(gaussian_blur)                                                           \
    X(cuda_stream_sync)                                                        \
    X(cuda_ctx_sync)

#define X(name) extern const struct pen_module_class stk_class_##name;
STK_MODULES(X)
#undef X

#endif  // STK_MODULES_H
