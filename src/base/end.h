#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#if __clang_major__ >= 12 && defined(__x86_64__)
#pragma float_control(pop)
#endif
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#pragma GCC diagnostic pop
