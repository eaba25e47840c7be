#ifndef MY_CUSTOM_CUDA_H
#define MY_CUSTOM_CUDA_H

#include <penstock/registry.h>

// A CUDA module of one's own: register it with pen_registry_add().
extern const struct pen_module_class my_custom_cuda;

#endif  // MY_CUSTOM_CUDA_H
