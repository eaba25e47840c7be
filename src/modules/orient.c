#include <string.h>

#include "orient.h"

// Orientation by Exif: where row 0 and column 0 of the stored picture lie.
//   1 top left       2 top right      3 bottom right   4 bottom left
//   5 left top       6 right top      7 right bottom   8 left bottom

uint8_t *stk_orient_target(const struct pen_plane *dst, int32_t orientation,
                           int32_t y, int32_t stored_height)
{
    if (orientation > 4)
        return NULL;
    const int32_t row = orientation >= 3 ? stored_height - 1 - y : y;
    return (uint8_t *)dst->host + (size_t)row * dst->pitch;
}

void stk_orient_row(uint8_t *row, int32_t orientation, int32_t width,
                    uint32_t pixel_bytes)
{
    if (orientation != 2 && orientation != 3)
        return;
    uint8_t *a = row, *b = row + (size_t)(width - 1) * pixel_bytes;
    for (; a < b; a += pixel_bytes, b -= pixel_bytes) {
        for (uint32_t i = 0; i < pixel_bytes; i++) {
            const uint8_t t = a[i];
            a[i] = b[i];
            b[i] = t;
        }
    }
}

void stk_orient_columns(const struct pen_plane *dst, int32_t orientation,
                        const uint8_t *rows, int32_t y, int32_t count,
                        int32_t stored_width, int32_t stored_height,
                        uint32_t pixel_bytes)
{
    const bool right = orientation == 6 || orientation == 7;
    const bool bottom = orientation == 7 || orientation == 8;

    for (int32_t x = 0; x < stored_width; x++) {
        const int32_t row = bottom ? stored_width - 1 - x : x;
        uint8_t *line = (uint8_t *)dst->host + (size_t)row * dst->pitch;
        for (int32_t i = 0; i < count; i++) {
            const int32_t column = right ? stored_height - 1 - (y + i) : y + i;
            memcpy(line + (size_t)column * pixel_bytes,
                   rows + ((size_t)i * (size_t)stored_width + (size_t)x) *
                              pixel_bytes,
                   pixel_bytes);
        }
    }
}
