#ifndef STK_ORIENT_H
#define STK_ORIENT_H

// Rows of a stored picture placed where its Exif orientation wants them.

#include <penstock/frame.h>

// Rows that are decoded at once when a picture is turned by a quarter: enough
// that the columns written are whole cache lines.
enum { STK_ORIENT_ROWS = 64 };

// Whether stored row `y` can be decoded straight into a row of `dst` (then it
// is returned; call stk_orient_row() when it is complete), or NULL.
uint8_t *stk_orient_target(const struct pen_plane *dst, int32_t orientation,
                           int32_t y, int32_t stored_height);
// Complete a row decoded into its target: mirror it where needed.
void stk_orient_row(uint8_t *row, int32_t orientation, int32_t width,
                    uint32_t pixel_bytes);
// Orientations 5 to 8: write `count` stored rows beginning with `y`, tight in
// `rows`, into the columns of `dst`.
void stk_orient_columns(const struct pen_plane *dst, int32_t orientation,
                        const uint8_t *rows, int32_t y, int32_t count,
                        int32_t stored_width, int32_t stored_height,
                        uint32_t pixel_bytes);

#endif  // STK_ORIENT_H
