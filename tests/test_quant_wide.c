/* The tests of the parts in src/quant again, with the encoders that specdec-quantize uses on processors with AVX2. */
#define SPECDEC__QUANT_WIDE
#include "test_quant.c"
