#ifndef PTX_CHECK_H
#define PTX_CHECK_H

// The first instruction of a PTX text that may round differently elsewhere: a
// float mul, add or sub without rounding modifier (ptxas may contract those),
// a fused multiply-add, or an approximate operation. NULL if there is none;
// else a static buffer with the instruction.
const char *ptx_find_contractible(const char *ptx);

#endif  // PTX_CHECK_H
