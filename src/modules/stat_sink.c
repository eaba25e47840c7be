// StatSink: takes every frame and lets it go. What it is there for, the
// counts and times of its edge, the runtime keeps for every module.

#include "common.h"
#include "modules.h"

static const struct pen_pin inputs[] = {
    STK_PIN_ANY("input",
                "Any frame. Its bytes are not looked at, so it may stay where "
                "it is.",
                PEN_MEM_BITS_HOST | STK_MEM_CUDA),
    { 0 },
};

static const char *const tags[] = {
    "function:stats", "backend:cpu", "media:any", "sink",
    "stats",          "performance", "debug",     NULL,
};

const struct pen_module_class stk_class_stat_sink = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "StatSink",
    .version = "1.0",
    .summary = "Takes every frame and lets it go; the report has its numbers.",
    .category = PEN_CATEGORY_SINK,
    .tags = tags,
    .inputs = inputs,
};
