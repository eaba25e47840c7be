#include <penstock/base.h>
