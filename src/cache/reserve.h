/* =====================================================================================================================
 * >>cache/reserve: reserving, committing, sharing and freeing slots: logical position p lies in slot p % 64 of a page.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/tiles.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "state.h"
#include "kv.h"

SPECDEC__FOR_SIZE

/* Computes tail_slots of the last segments: how many free slots of their pages this view may reserve. Called only when
   this view has changed: what other views do to these pages must not move the nodes that are reserved. */
static void specdec__view_update_tail_slots(specdec__view *view, const specdec__kv *kv)
{
    const int used = view->length % SPECDEC__KEYS;
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];
        const specdec__segment *last = s->count ? &s->segment[s->count - 1] : NULL;

        s->tail_slots = 0;
        if (last && used && last->from + last->length == used && kv->span[span].view_counts[last->page] == 1)
            s->tail_slots = SPECDEC__KEYS - used;
    }
}

/* Returns the slot (page * 64 + index in the page) that is reserved for node i. */
static int specdec__view_reserved_slot(const specdec__view *view, int span, int i)
{
    const specdec__segments *s = &view->span[span];
    const int used = view->length % SPECDEC__KEYS;
    const int page = i < s->tail_slots ? s->segment[s->count - 1].page
                                 : s->segment[s->count + (s->tail_slots ? i - s->tail_slots : i +
                                                          used) / SPECDEC__KEYS].page;

    return page * SPECDEC__KEYS + (used + i) % SPECDEC__KEYS;
}

/* Whether a view still holds all keys of logical positions [from, end) that a token at position `end` attends to in a
   span. */
static int specdec__view_has_keys(const specdec__view *view, const specdec__kv *kv, int span, int from, int end)
{
    const specdec__segments *s = &view->span[span];
    const int window = kv->span[span].window;
    int at = window ? specdec__max_int(end + 1 - window, from) : from, i;

    for (i = 0; i < s->count && at < end; i++)
        if (s->segment[i].start <= at && s->segment[i].start + s->segment[i].length > at)
            at = s->segment[i].start + s->segment[i].length;
    return at >= end || !kv->span[span].count;
}

/* Whether a view still holds, in every span, all of its first `end` keys that a token at position `end` attends to. */
static int specdec__view_has_all_keys(const specdec__view *view, const specdec__kv *kv, int end)
{
    int span, holds = 1;

    for (span = 0; span < SPECDEC__SPANS; span++)
        holds &= specdec__view_has_keys(view, kv, span, 0, end);
    return holds;
}

/* Returns to how many of its first `end` keys a view can be cut: with recurrent layers, up to the last checkpoint; 0
   where a window would reach pages that were freed. */
static int specdec__view_longest_cut_length(const specdec__view *view, const specdec__kv *kv, int end)
{
    end = specdec__states_exist(&kv->states) ? specdec__state_longest_cut_length(&view->state, end) : end;
    return specdec__view_has_all_keys(view, kv, end) ? end : 0;
}

/* Cuts a view without reserved slots to its first `length` keys, or to the length that specdec__view_longest_cut_length
   returns, and frees the pages that no view holds any more. */
static void specdec__view_cut(specdec__view *view, specdec__kv *kv, int length)
{
    int span;

    if (length < view->length) {
        length = specdec__view_longest_cut_length(view, kv, length);
        if (specdec__states_exist(&kv->states))
            specdec__state_cut(&view->state, &kv->states, length);
    }
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        while (s->count && s->segment[s->count - 1].start >= length)
            specdec__pages_add_holder(&kv->span[span], s->segment[--s->count].page, view, -1);
        if (s->count)
            s->segment[s->count - 1].length = specdec__min_int(s->segment[s->count - 1].length,
                                                               length - s->segment[s->count - 1].start);
    }
    if (length < view->length) {
        view->next_position -= view->length - length;
        view->length = length;
    }
    view->shared_keys = specdec__min_int(view->shared_keys, length);
}

/* Returns the kept view to evict first: the least recently used one. If a quarter or more of the kept views were never
   shared, only these are considered, so that many such views do not evict those that were shared. NULL: all kept views
   are empty. */
static specdec__view *specdec__kv_find_evictable_view(const specdec__kv *kv)
{
    specdec__view *view, *oldest = NULL;
    int all = 0, alone = 0;

    for (view = kv->first_kept; view; view = view->next_kept) {
        all += view->length > 0;
        alone += view->length && !view->shared_keys;
    }
    for (view = kv->first_kept; view; view = view->next_kept)
        if (view->length && (4 * alone < all || !view->shared_keys) && (!oldest || view->last_use < oldest->last_use))
            oldest = view;
    return oldest;
}

/* Evicts keys of kept views: first the keys of one view behind its shared ones, if they are 64 or more; else all keys
   of the view that specdec__kv_find_evictable_view returns. Returns 0 when kept views have no keys left. */
static int specdec__kv_evict_kept_keys(specdec__kv *kv)
{
    specdec__view *view;

    for (view = kv->first_kept; view; view = view->next_kept)
        if (view->shared_keys && view->length - view->shared_keys >= SPECDEC__KEYS) {
            specdec__view_cut(view, kv, view->shared_keys);
            return 1;
        }
    view = specdec__kv_find_evictable_view(kv);
    if (view)
        specdec__view_cut(view, kv, 0);
    return view != NULL;
}

/* Takes a slot for a recurrent state, with one reference, and returns its number; evicts kept views if there is no free
   slot. Returns -1 if there is still none. */
static int specdec__kv_take_state_slot(specdec__kv *kv)
{
    specdec__view *oldest;
    int slot;

    while ((slot = specdec__states_take_slot(&kv->states)) < 0 &&
           (oldest = specdec__kv_find_evictable_view(kv)) != NULL)
        specdec__view_cut(oldest, kv, 0);
    return slot;
}

/* Takes a page of a span, with one view as its holder, and returns its number; evicts kept views if there is no free
   page. Returns -1 if there is still none. */
static int specdec__pages_take_page(specdec__kv *kv, int span)
{
    specdec__pages *pages = &kv->span[span];
    int page;

    while (!pages->free_count)
        if (!pages->only_kept || !specdec__kv_evict_kept_keys(kv))
            return -1;
    page = pages->free_pages[--pages->free_count];
    pages->view_counts[page] = 1;
    if (page == pages->cleared) /* a page is cleared, and so takes memory, when it is first used */
        memset(pages->memory + (size_t)pages->cleared++ * pages->bytes, 0, pages->bytes);
    return page;
}

/* Copies the last page of a view in a span if other views hold it, too, as the view is to reserve slots in it (copy on
   write). Returns 0 when pages run out. */
static int specdec__view_copy_last_page(specdec__view *view, specdec__kv *kv, int span)
{
    specdec__pages *pages = &kv->span[span];
    specdec__segments *s = &view->span[span];
    specdec__segment *last = s->count ? &s->segment[s->count - 1] : NULL;
    const int used = view->length % SPECDEC__KEYS;
    int page;

    if (!pages->count || !last || !used || s->tail_slots || s->spare_pages || last->from + last->length != used)
        return 1;
    if (pages->view_counts[last->page] > 1) {
        page = specdec__pages_take_page(kv, span);
        if (page < 0 && pages->view_counts[last->page] > 1 + pages->kept_counts[last->page])
            return 0;
        while (page < 0 && pages->view_counts[last->page] > 1) /* all other holders are kept views */
            specdec__kv_evict_kept_keys(kv);
        if (page >= 0) {
            memcpy(pages->memory + (size_t)page * pages->bytes, pages->memory + (size_t)last->page * pages->bytes,
                   pages->bytes);
            specdec__pages_add_holder(pages, last->page, view, -1);
            last->page = page;
        }
    }
    s->tail_slots = SPECDEC__KEYS - used;
    return 1;
}

/* Returns how many nodes, from node 0 on, have reserved slots in every span. */
static int specdec__view_count_reserved_slots(const specdec__view *view, const specdec__kv *kv)
{
    int span, least = 1 << 30;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        const specdec__segments *s = &view->span[span];
        const int spare = s->spare_pages * SPECDEC__KEYS, used = view->length % SPECDEC__KEYS;

        if (kv->span[span].count)
            least = specdec__min_int(least, s->tail_slots ? s->tail_slots + spare : specdec__max_int(spare - used, 0));
    }
    return least;
}

/* Reserves slots for n nodes behind the committed keys, in every span. Returns 0 when pages run out. */
static int specdec__view_reserve_slots(specdec__view *view, specdec__kv *kv, int n)
{
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__pages *pages = &kv->span[span];
        specdec__segments *s = &view->span[span];
        int slots;

        if (!specdec__view_copy_last_page(view, kv, span))
            return 0;
        slots = s->tail_slots ? n - s->tail_slots : n + view->length % SPECDEC__KEYS;
        while (pages->count && s->spare_pages * SPECDEC__KEYS < slots) {
            specdec__segment *spare = &s->segment[s->count + s->spare_pages];

            const int page = s->count + s->spare_pages < view->max_segments ? specdec__pages_take_page(kv, span) : -1;

            if (page < 0)
                return 0;
            memset(spare, 0, sizeof *spare);
            spare->page = page;
            s->spare_pages++;
        }
    }
    return 1;
}

/* Reserves slots for n nodes as specdec__view_reserve_slots does, and notifies the listener if anything has changed.
   Returns 0 when pages run out. */
static int specdec__view_reserve_and_notify(specdec__view *view, specdec__kv *kv, int n)
{
    const int before = SPECDEC__PIPE && kv->notify ? specdec__view_count_reserved_slots(view, kv) : 0;
    const int enough = specdec__view_reserve_slots(view, kv, n);

    if (SPECDEC__PIPE && (!enough || before < n))
        specdec__kv_notify(kv, SPECDEC__KV_RESERVE, view, NULL, n, enough, NULL);
    return enough;
}

/* Returns the offset of a block of an 8-bit key, dimensions d to d + 31, among the keys of a head in a page. A block is
   16 scales, then codes (8, 16 keys, 4). */
SPECDEC__INLINE size_t specdec__kv_key_block_offset(const specdec__kv_layer *layer, int slot, int d)
{
    return (size_t)(slot % SPECDEC__KEYS / SPECDEC__ROWS * (layer->dim / 32) + d / 32) * 34 * SPECDEC__ROWS;
}

/* Returns the offset of the code of dimension d of an 8-bit value, from the first value of a head in a page. */
SPECDEC__INLINE size_t specdec__kv_value_code_offset(int slot, int d)
{
    const int place = slot % SPECDEC__KEYS;

    return SPECDEC__KEYS * sizeof(float) + (size_t)(d / SPECDEC__ROWS * SPECDEC__KEYS + place / 4 * 4) * SPECDEC__ROWS +
           (size_t)(d % SPECDEC__ROWS * 4 + place % 4);
}

/* Copies an 8-bit key and its value from slot a of one page to slot b of another. from, to: the keys of one layer and
   head in these pages. */
static void specdec__kv_copy_codes(const specdec__kv_layer *layer, const unsigned char *from, int a, unsigned char *to,
                                   int b)
{
    const unsigned char *v = from + layer->key_bytes, *old;
    unsigned char *v_to = to + layer->key_bytes, *own;
    int d, i;

    for (d = 0; d < layer->dim; d += 32) {
        old = from + specdec__kv_key_block_offset(layer, a, d);
        own = to + specdec__kv_key_block_offset(layer, b, d);
        memcpy(own + b % SPECDEC__ROWS * 2, old + a % SPECDEC__ROWS * 2, 2);
        specdec__quant_move_units(4, 8, 0, old + 32 + a % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS,
                                  own + 32 + b % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS);
    }
    memcpy(v_to + (size_t)(b % SPECDEC__KEYS) * 4, v + (size_t)(a % SPECDEC__KEYS) * 4, 4);
    for (d = 0; d < layer->value_dim; d += SPECDEC__ROWS) {
        old = v + specdec__kv_value_code_offset(a, d);
        own = v_to + specdec__kv_value_code_offset(b, d);
        for (i = 0; i < SPECDEC__ROWS; i++)
            own[i * 4] = old[i * 4];
    }
}

/* Copies the keys and values in slots [a, a + count) of one page to slots [b, b + count) of another. from, to: the keys
   of one layer and head in these pages. type: the type of the cache. */
static void specdec__kv_copy_slots(int type, const specdec__kv_layer *layer, const unsigned char *from, int a,
                                   unsigned char *to, int b, int count)
{
    const size_t row = (size_t)layer->value_dim * (type == SPECDEC__KV_F32 ? 4 : 2);
    const size_t size = type == SPECDEC__KV_F32 ? 4 : 2, n = (size_t)count, old = (size_t)a, own = (size_t)b;
    size_t d;
    int i;

    if (specdec__kv_types[type].has_codes) {
        for (i = 0; i < count; i++)
            specdec__kv_copy_codes(layer, from, a + i, to, b + i);
        return;
    }
    memcpy(to + layer->key_bytes + own * row, from + layer->key_bytes + old * row, n * row);
    for (d = 0; d < (size_t)layer->dim; d++)
        memcpy(to + (d * SPECDEC__KEYS + own) * size, from + (d * SPECDEC__KEYS + old) * size, n * size);
}

/* Copies the keys and values of one slot to another, for all layers and heads of a span. Slots are page * 64 + index in
   the page. */
static void specdec__kv_copy_slot(specdec__kv *kv, int span, int from, int to)
{
    int layer, head;

    for (layer = 0; layer < kv->layers; layer++) {
        const specdec__kv_layer *l = &kv->layer[layer];

        for (head = 0; l->span == span && l->owns_keys && head < l->kv_heads; head++)
            specdec__kv_copy_slots(kv->type, l, specdec__kv_keys_address(kv, l, from / SPECDEC__KEYS, head),
                                   from % SPECDEC__KEYS, specdec__kv_keys_address(kv, l, to / SPECDEC__KEYS, head),
                                   to % SPECDEC__KEYS, 1);
    }
}

/* Frees the pages of a span that the window of no later query reaches, except for the SPECDEC__REWIND_KEYS keys behind
   it. */
static void specdec__view_free_old_pages(specdec__view *view, specdec__pages *pages, specdec__segments *s)
{
    const int first = pages->window ? view->length + 1 - pages->window - SPECDEC__REWIND_KEYS : 0;
    int gone = 0;

    while (gone < s->count && s->segment[gone].start + s->segment[gone].length <= first)
        specdec__pages_add_holder(pages, s->segment[gone++].page, view, -1);
    if (gone)
        memmove(s->segment, s->segment + gone, (size_t)(s->count + s->spare_pages - gone) * sizeof *s->segment);
    s->count -= gone;
}

/* Frees all reserved slots of a view: its spare pages, and the recurrent inputs of its nodes. */
static void specdec__view_free_reserved_slots(specdec__view *view, specdec__kv *kv)
{
    int span, had = 0;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        for (had |= s->spare_pages; s->spare_pages;)
            specdec__pages_add_holder(&kv->span[span], s->segment[s->count + --s->spare_pages].page, view, -1);
    }
    if (specdec__states_exist(&kv->states))
        specdec__state_free_node_inputs(&view->state, &kv->states);
    if (had)
        specdec__kv_notify(kv, SPECDEC__KV_UNRESERVE, view, NULL, 0, 0, NULL);
}

/* Commits the reserved nodes path[0] < path[1] < ... of a view as its next tokens. The next `stay` entries of path stay
   reserved and become nodes 0, 1, ...; with stay = -1 all later nodes stay. Another view may share the last page by
   now: it sees the committed keys, and copies the page before it reserves slots in it. */
static void specdec__view_commit_and_keep_nodes(specdec__view *view, specdec__kv *kv, const int *path, int count,
                                                int stay)
{
    int rooms[SPECDEC__SPANS], span, i, left, room, at;

    if (specdec__states_exist(&kv->states))
        specdec__state_commit(&view->state, &kv->states, path, count, stay);

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        rooms[span] = s->tail_slots - count;
        for (i = 0; i < count + stay + (stay < 0) && kv->span[span].count; i++)
            if (path[i] != i)
                specdec__kv_copy_slot(kv, span, specdec__view_reserved_slot(view, span, path[i]),
                                      specdec__view_reserved_slot(view, span, i));
        room = specdec__min_int(s->tail_slots, count);
        if (room)
            s->segment[s->count - 1].length += room;
        for (left = count - room; left > 0 && kv->span[span].count; left -= at) { /* a spare page becomes a segment */
            specdec__segment *last = &s->segment[s->count++];

            s->spare_pages--;
            last->start = view->length + count - left;
            last->from = last->start % SPECDEC__KEYS;
            last->length = at = specdec__min_int(left, SPECDEC__KEYS - last->from);
        }
    }
    view->length += count;
    view->next_position += count;
    for (span = 0; span < SPECDEC__SPANS; span++)
        specdec__view_free_old_pages(view, &kv->span[span], &view->span[span]);
    specdec__view_update_tail_slots(view, kv);
    for (span = 0; span < SPECDEC__SPANS; span++)
        view->span[span].tail_slots = specdec__max_int(view->span[span].tail_slots, rooms[span]);
    specdec__kv_notify(kv, SPECDEC__KV_COMMIT, view, NULL, count, stay, path);
}

/* Commits the reserved nodes path[0] < path[1] < ... of a view as its next tokens; the slots of all other nodes are
   free. */
static void specdec__view_commit(specdec__view *view, specdec__kv *kv, const int *path, int count)
{
    specdec__view_commit_and_keep_nodes(view, kv, path, count, 0);
}

/* Removes all keys from logical position `length` on, as specdec__view_cut does, and all reserved slots. */
static void specdec__view_truncate(specdec__view *view, specdec__kv *kv, int length)
{
    specdec__view_free_reserved_slots(view, kv);
    specdec__kv_notify(kv, SPECDEC__KV_TRUNCATE, view, NULL, length, 0, NULL);
    specdec__view_cut(view, kv, length);
    specdec__view_update_tail_slots(view, kv);
}

/* Records that a view was made or used now, and that live views have shared its first `shared` keys. */
static void specdec__view_mark_used(specdec__view *view, specdec__kv *kv, int shared)
{
    view->last_use = ++kv->use_clock;
    view->shared_keys = specdec__max_int(view->shared_keys, view->is_kept ? shared : 0);
}

/* Appends the keys [from, from + count) of another view to a view without copying: both views hold the pages. With
   recurrent layers, `from` must be 0, and only as many keys are shared as the other view has a state for. Returns 0
   when there is no room for the segments, or when the other view has freed pages that a window would reach; the keys
   appended so far stay until the view is truncated. */
static int specdec__view_share_keys(specdec__view *view, specdec__kv *kv, specdec__view *other, int from, int count)
{
    int end, span, i;

    specdec__view_free_reserved_slots(view, kv);
    if (specdec__states_exist(&kv->states)) {
        if (from || view->length)
            return 0;
        count = specdec__state_count_shareable_tokens(&view->state, &other->state, count);
        specdec__state_share_points(&view->state, &kv->states, &other->state, count);
    }
    end = from + count;
    specdec__kv_notify(kv, SPECDEC__KV_SHARE, view, other, from, count, NULL);
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];
        const specdec__segments *source = &other->span[span];

        if (!specdec__view_has_keys(other, kv, span, from, end))
            return 0;
        for (i = 0; i < source->count; i++) {
            const specdec__segment *a = &source->segment[i];
            const int first = specdec__max_int(a->start, from), last = specdec__min_int(a->start + a->length, end);

            if (first >= last)
                continue;
            if (s->count == view->max_segments)
                return 0;
            s->segment[s->count].page = a->page;
            s->segment[s->count].from = a->from + first - a->start;
            s->segment[s->count].length = last - first;
            s->segment[s->count++].start = view->length + first - from;
            specdec__pages_add_holder(&kv->span[span], a->page, view, 1);
        }
    }
    view->length += count;
    view->next_position = other->next_position - (other->length - end);
    specdec__view_update_tail_slots(view, kv);
    specdec__view_mark_used(view, kv, 0);
    specdec__view_mark_used(other, kv, end);
    return 1;
}
SPECDEC__FOR_SPEED

/* Returns the last segment that starts at or before a logical position. */
static const specdec__segment *specdec__view_find_segment(const specdec__segments *segments, int position)
{
    int low = 0, high = segments->count - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (segments->segment[middle].start <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return &segments->segment[low];
}

/* Returns the page that holds the committed logical positions [from, from + count), each position p in slot p % 64; -1:
   no page does. */
static int specdec__view_find_page_of_positions(const specdec__segments *segments, int from, int count)
{
    const specdec__segment *s = specdec__view_find_segment(segments, from);

    return from + count <= s->start + s->length && (s->from - s->start) % SPECDEC__KEYS == 0 ? s->page : -1;
}

/* Writes the slots (page * 64 + index in the page) of the committed logical positions [from, from + count) to slots
   (count). */
static void specdec__view_find_slots_of_positions(const specdec__segments *segments, int from, int count, int *slots)
{
    const specdec__segment *s = specdec__view_find_segment(segments, from);
    int i = 0;

    for (; i < count; s++) {
        int at = from + i - s->start;

        for (; i < count && at < s->length; i++, at++)
            slots[i] = s->page * SPECDEC__KEYS + s->from + at;
    }
}
