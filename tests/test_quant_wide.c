/* The tests of the >>quant section again, with the encoders that specdec-quantize uses on processors with AVX2. */
#define SPECDEC__QUANT_WIDE
#include "test_quant.c" /* defines SPECDEC_IMPLEMENTATION */
