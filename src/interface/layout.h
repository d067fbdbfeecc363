#pragma once
#include "functions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Is this header that of the implementation? ------------------------------------------------------------------

   A program that was compiled with the header of one version and linked with another one's object would hand over
   structures of other sizes. So the four calls that take a configuration are macros, too: they hand over the version
   and the layout that the caller was compiled with, and a difference is SPECDEC_ERROR_MISMATCH, before anything else is
   read. Bindings that call the functions ask specdec_check_layout or specdec_size_of first. */

#define SPECDEC_STRUCTURES(X) \
    X(specdec_config) X(specdec_settings) X(specdec_sampling) X(specdec_source) X(specdec_hooks) X(specdec_cluster) \
    X(specdec_error) X(specdec_text) X(specdec_message) X(specdec_stats) X(specdec_info) X(specdec_model_info) \
    X(specdec_bias) X(specdec_candidate) X(specdec_logprob) X(specdec_candidates) X(specdec_uniform) X(specdec_tree) \
    X(specdec_conversation) X(specdec_field) X(specdec_tool_call) X(specdec_chat_message) X(specdec_chat_input) \
    X(specdec_part) X(specdec_splitter)

/* The version, the sizes of all structures and the offsets of a configuration's members, as one number. */
#define SPECDEC__SQUARE(type) +sizeof(type) * sizeof(type)
#define SPECDEC__PLACE(name, member, kind, low, high, words, help) +offsetof(specdec_config, member)
#define SPECDEC__PLACE_OF_SETTINGS(name, member, kind, low, high, words, help) \
    +offsetof(specdec_config, settings.member)
#define SPECDEC_LAYOUT \
    ((UINT64_C(1) << 32) * SPECDEC_VERSION_NUMBER SPECDEC_STRUCTURES(SPECDEC__SQUARE) \
         SPECDEC_SETTINGS_FIELDS(SPECDEC__PLACE_OF_SETTINGS) SPECDEC_CONFIG_FIELDS(SPECDEC__PLACE))

/* Checks that the caller's SPECDEC_LAYOUT is that of the implementation. Errors: MISMATCH. */
SPECDEC_DEF specdec_result specdec_check_layout(uint64_t layout, specdec_error *error);

/* Returns the bytes of a public structure by name, such as "specdec_config"; 0: there is none (or SPECDEC_NO_NAMES). */
SPECDEC_DEF size_t specdec_size_of(const char *structure);

SPECDEC_DEF specdec_result specdec_checked_memory_needed(uint64_t layout, const specdec_config *config, size_t *bytes,
                                                         specdec_error *error);
SPECDEC_DEF specdec_result specdec_checked_init(uint64_t layout, specdec **engine, const specdec_config *config,
                                                void *memory, size_t bytes, specdec_error *error);
SPECDEC_DEF specdec_result specdec_checked_model_memory_needed(uint64_t layout, const specdec_config *config,
                                                               size_t *bytes, specdec_error *error);
SPECDEC_DEF specdec_result specdec_checked_model_init(uint64_t layout, specdec_model **model,
                                                      const specdec_config *config, void *memory, size_t bytes,
                                                      specdec_error *error);

#define specdec_memory_needed(...) specdec_checked_memory_needed(SPECDEC_LAYOUT, __VA_ARGS__)
#define specdec_init(...) specdec_checked_init(SPECDEC_LAYOUT, __VA_ARGS__)
#define specdec_model_memory_needed(...) specdec_checked_model_memory_needed(SPECDEC_LAYOUT, __VA_ARGS__)
#define specdec_model_init(...) specdec_checked_model_init(SPECDEC_LAYOUT, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
