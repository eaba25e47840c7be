#include "reference.h"

int ref_planes(enum pen_format format)
{
    switch (format) {
    case PEN_FMT_YUV420:
    case PEN_FMT_YUV444:
        return 3;
    case PEN_FMT_NV12:
        return 2;
    default:
        return 1;
    }
}

size_t ref_row_bytes(enum pen_format format, int plane, int w)
{
    const size_t n = (size_t)w;
    switch (format) {
    case PEN_FMT_RGB:
    case PEN_FMT_BGR:
        return 3 * n;
    case PEN_FMT_RGBA:
    case PEN_FMT_BGRA:
        return 4 * n;
    case PEN_FMT_UYVY:
    case PEN_FMT_YUYV:
        return 4 * ((n + 1) / 2);
    case PEN_FMT_YUV411_I:
        return 6 * ((n + 3) / 4);
    case PEN_FMT_YUV420:
        return plane == 0 ? n : (n + 1) / 2;
    case PEN_FMT_NV12:
        return plane == 0 ? n : 2 * ((n + 1) / 2);
    default:  // one sample per pixel
        return n;
    }
}

int ref_rows(enum pen_format format, int plane, int h)
{
    const int half = format == PEN_FMT_YUV420 || format == PEN_FMT_NV12;
    return half && plane > 0 ? (h + 1) / 2 : h;
}

size_t ref_bytes(enum pen_format format, int w, int h)
{
    size_t bytes = 0;
    for (int p = 0; p < ref_planes(format); p++)
        bytes += ref_row_bytes(format, p, w) * (size_t)ref_rows(format, p, h);
    return bytes;
}
