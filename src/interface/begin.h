#pragma once

/* Warnings that this file does not heed; all of them end with it. */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option" /* each of them came with some version */
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang diagnostic ignored "-Wreserved-macro-identifier"
#ifdef __cplusplus
#pragma clang diagnostic ignored "-Wc++98-compat-pedantic" /* C++11 */
#endif
#endif

/* strict -std=c99 hides POSIX; these must come before the first system header. */
#if defined(SPECDEC_IMPLEMENTATION) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE 1
#endif
