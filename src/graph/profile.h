#ifndef STK_PROFILE_H
#define STK_PROFILE_H

// Profiles as JSON, for who writes them.

#include <penstock/plan.h>

#include "json.h"

// The object that pen_profile_load() reads; NULL when out of memory.
json_t *stk_profile_json(const struct pen_profile *profile);

#endif  // STK_PROFILE_H
