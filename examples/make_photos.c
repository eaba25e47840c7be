// Make photo-like JPEG files for the examples: landscapes of fractal noise
// with sky, clouds, ridges, water and sensor grain. Not flat, not random: the
// detail falls off with frequency as in photographs.
//
//     make_photos FOLDER [COUNT [WIDTH HEIGHT]]

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

struct colour {
    double r, g, b;
};

static uint32_t hash(uint32_t x, uint32_t y, uint32_t seed)
{
    uint32_t h = x * 0x85ebca6bu ^ y * 0xc2b2ae35u ^ seed * 0x27d4eb2fu;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    h *= 0x297a2d39u;
    return h ^ h >> 15;
}

static double lattice(int x, int y, uint32_t seed)
{
    return hash((uint32_t)x, (uint32_t)y, seed) / 4294967296.0;
}

static double smooth(double t)
{
    return t * t * (3 - 2 * t);
}

// Value noise in 0..1.
static double noise(double x, double y, uint32_t seed)
{
    const int ix = (int)floor(x), iy = (int)floor(y);
    const double tx = smooth(x - ix), ty = smooth(y - iy);
    const double top =
        lattice(ix, iy, seed) * (1 - tx) + lattice(ix + 1, iy, seed) * tx;
    const double bottom = lattice(ix, iy + 1, seed) * (1 - tx) +
                          lattice(ix + 1, iy + 1, seed) * tx;
    return top * (1 - ty) + bottom * ty;
}

// Octaves of noise, each half as strong and twice as fine; about 0..1.
static double fractal(double x, double y, int octaves, uint32_t seed)
{
    double sum = 0, weight = 0.5;
    for (int i = 0; i < octaves; i++) {
        sum += weight * noise(x, y, seed + (uint32_t)i);
        x *= 2;
        y *= 2;
        weight *= 0.5;
    }
    return sum;
}

static struct colour mix(struct colour a, struct colour b, double t)
{
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return (struct colour){ a.r + (b.r - a.r) * t, a.g + (b.g - a.g) * t,
                            a.b + (b.b - a.b) * t };
}

static struct colour sky(double u, double v, uint32_t seed)
{
    const struct colour zenith = { 0.22, 0.42, 0.74 };
    const struct colour haze = { 0.86, 0.83, 0.78 };
    const struct colour cloud = { 0.97, 0.97, 0.98 };
    const double cover = fractal(u * 5, v * 9, 6, seed) - 0.42;
    return mix(mix(zenith, haze, v * 1.6), cloud, cover * 3.5);
}

// Colour at (u, v) in 0..1, v downwards.
static struct colour scene(double u, double v, uint32_t seed)
{
    const double shore = 0.68;
    if (v > shore) {
        const double depth = (v - shore) / (1 - shore);
        const double wave =
            0.012 * (fractal(u * 30, depth * 120, 4, seed + 90) - 0.5);
        const struct colour deep = { 0.05, 0.14, 0.18 };
        const double mirrored = shore - (v - shore) * 1.1 + wave * depth * 8;
        return mix(scene(u + wave, mirrored, seed), deep, 0.35 + 0.5 * depth);
    }

    struct colour c = sky(u, v, seed);
    for (int ridge = 0; ridge < 4; ridge++) {
        const uint32_t s = seed + 20u + 7u * (uint32_t)ridge;
        const double near = (ridge + 1) / 4.0;
        const double top = 0.34 + 0.09 * ridge -
                           0.22 * (fractal(u * (2 + ridge), 0.5, 7, s) - 0.4);
        if (v < top)
            continue;
        const double texture = fractal(u * 60 * near, v * 60 * near, 6, s + 3);
        const struct colour rock = { 0.28 * texture, 0.34 * texture,
                                     0.22 * texture };
        const struct colour air = { 0.58, 0.66, 0.76 };
        c = mix(air, rock, 0.25 + 0.75 * near);
    }
    return c;
}

static JSAMPLE to_sample(double linear, double grain)
{
    const double value = 255 * pow(linear < 0 ? 0 : linear, 0.9) + grain;
    return value < 0 ? 0 : value > 255 ? 255 : (JSAMPLE)lround(value);
}

static void paint_row(JSAMPLE *row, int y, int width, int height, uint32_t seed)
{
    for (int x = 0; x < width; x++) {
        const double u = (x + 0.5) / width, v = (y + 0.5) / height;
        const double du = u - 0.5, dv = v - 0.5;
        const double vignette = 1 - 0.5 * (du * du + dv * dv);
        const struct colour c = scene(u, v, seed);
        const double grain =
            7 * (lattice(x, y, seed + 500) + lattice(x, y, seed + 501) - 1);
        row[3 * x] = to_sample(c.r * vignette, grain);
        row[3 * x + 1] = to_sample(c.g * vignette, grain);
        row[3 * x + 2] = to_sample(c.b * vignette, grain);
    }
}

static int write_photo(const char *path, int width, int height, uint32_t seed)
{
    FILE *f = fopen(path, "wb");
    JSAMPLE *row = malloc((size_t)width * 3);
    if (!f || !row) {
        fprintf(stderr, "make_photos: %s: %s\n", path, strerror(errno));
        free(row);
        if (f)
            fclose(f);
        return 1;
    }

    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 92, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        paint_row(row, y, width, height, seed);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    if (fclose(f) != 0) {
        fprintf(stderr, "make_photos: %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5 || argc == 4) {
        fprintf(stderr, "usage: make_photos FOLDER [COUNT [WIDTH HEIGHT]]\n");
        return 3;
    }
    const int count = argc > 2 ? atoi(argv[2]) : 12;
    const int width = argc > 3 ? atoi(argv[3]) : 960;
    const int height = argc > 3 ? atoi(argv[4]) : 640;
    if (count < 1 || count > 9999 || width < 1 || height < 1 || width > 65500 ||
        height > 65500) {
        fprintf(stderr, "make_photos: COUNT is 1 to 9999, sizes 1 to 65500\n");
        return 3;
    }
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "make_photos: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%04d.jpg", argv[1], i);
        if (write_photo(path, width, height, 1000u * (uint32_t)i + 17))
            return 1;
    }
    return 0;
}
