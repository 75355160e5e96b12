/*
 * move.cuh - many tensors into or out of a fusion buffer in one launch, scaled on the way.
 *
 * The work is a flat list of chunks, so that many small tensors and few large ones keep all blocks
 * busy alike. A block finds the tensor of its chunk by a binary search, the same for all threads.
 */
#ifndef DT_CUDA_MOVE_CUH
#define DT_CUDA_MOVE_CUH

#include "kernels.h"
#include "portable.cuh"

/* ---- What becomes of an element ------------------------------------------------------------- */

struct keep {
    typedef unsigned char element;
    template <typename TO> DT_DEVICE TO turn(const dt_move_head_t &, const TO &word)
    {
        return word;
    }
};

/* A division in double is a call when its operands are unusual. Not inlined, it does not make the
 * loop around it spill registers. */
#if defined(__CUDACC__)
static __device__ __noinline__ double divide(double value, double divisor)
#else
static inline double divide(double value, double divisor)
#endif
{
    return value / divisor;
}

DT_DEVICE float divide(float value, float divisor)
{
    return value / divisor;
}

/* x / divisor * scale, in the type of the accumulation, rounded to the element's once. */
template <typename T> struct scaled {
    typedef T element;
    typedef typename arithmetic<T>::type wide;

    template <typename TO> DT_DEVICE TO turn(const dt_move_head_t &head, TO word)
    {
        T elements[sizeof(TO) / sizeof(T)];
        const wide divisor = (wide)head.divisor, scale = (wide)head.scale;
        memcpy((void *)elements, &word, sizeof word);
#pragma unroll
        for (unsigned i = 0; i < sizeof(TO) / sizeof(T); i++) {
            wide value = arithmetic<T>::load(elements[i]);
            if (divisor != 1)
                value = divide(value, divisor);
            elements[i] = arithmetic<T>::store(value * scale);
        }
        memcpy(&word, (const void *)elements, sizeof word);
        return word;
    }
};

/* ---- A span of memory ------------------------------------------------------------------------ */

/* Words that all threads of a block move before the next round: enough loads under way to fill the
 * memory's pipeline before the first store. */
#define DT_MOVE_LOADS 4

template <typename FROM, typename TO, typename MAP>
DT_DEVICE void move_each(const dt_move_head_t &head, const FROM *source, TO *target, int64_t words,
                         const place_t &place)
{
    const int64_t step = place.num_threads;
    int64_t i = place.thread;
    for (; i + (DT_MOVE_LOADS - 1) * step < words; i += DT_MOVE_LOADS * step) {
        FROM loaded[DT_MOVE_LOADS];
#pragma unroll
        for (int k = 0; k < DT_MOVE_LOADS; k++)
            loaded[k] = load_once(source + i + k * step);
#pragma unroll
        for (int k = 0; k < DT_MOVE_LOADS; k++)
            target[i + k * step] = MAP::template turn<TO>(head, loaded[k]);
    }
    for (; i < words; i += step)
        target[i] = MAP::template turn<TO>(head, load_once(source + i));
}

template <int WIDTH, typename MAP>
DT_DEVICE void move_words(const dt_move_head_t &head, const char *from, char *to, int64_t words,
                          const place_t &place)
{
    typedef typename word<WIDTH>::type word_t;
    move_each<word_t, word_t, MAP>(head, (const word_t *)from, (word_t *)to, words, place);
}

/* Elements up to the first address of a whole word, then words, then what is left. */
template <int WIDTH, typename MAP>
DT_DEVICE void move_aligned(const dt_move_head_t &head, const char *from, char *to, int64_t bytes,
                            const place_t &place)
{
    const int size = sizeof(typename MAP::element);
    int64_t before = (WIDTH - (int64_t)((uintptr_t)to % WIDTH)) % WIDTH;
    if (before > bytes)
        before = bytes;
    const int64_t whole = (bytes - before) / WIDTH * WIDTH, after = before + whole;
    move_words<size, MAP>(head, from, to, before / size, place);
    move_words<WIDTH, MAP>(head, from + before, to + before, whole / WIDTH, place);
    move_words<size, MAP>(head, from + after, to + after, (bytes - after) / size, place);
}

/* The widest word that source and target can both be aligned to. */
template <typename MAP>
DT_DEVICE void move_span(const dt_move_head_t &head, const char *from, char *to, int64_t bytes,
                         const place_t &place)
{
    const unsigned skew = (unsigned)(((uintptr_t)from ^ (uintptr_t)to) % 16);
    const int size = sizeof(typename MAP::element);
    if (skew == 0)
        move_aligned<16, MAP>(head, from, to, bytes, place);
    else if (skew % 8 == 0)
        move_aligned<8, MAP>(head, from, to, bytes, place);
    else if (size < 8 && skew % 4 == 0)
        move_aligned<(size < 4 ? 4 : size), MAP>(head, from, to, bytes, place);
    else if (size < 4 && skew % 2 == 0)
        move_aligned<(size < 2 ? 2 : size), MAP>(head, from, to, bytes, place);
    else
        move_words<size, MAP>(head, from, to, bytes / size, place);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* The tensor that a chunk belongs to: the last one that begins at or before it. */
template <typename ARGS> DT_DEVICE uint32_t find_entry(const ARGS &args, uint32_t chunk)
{
    uint32_t low = 0, high = args.head.num_entries - 1;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (args.entries[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Zeros from a tensor's end in the buffer to where the next one begins. */
DT_DEVICE void clear_padding(char *end, const place_t &place)
{
    const unsigned used = (unsigned)((uintptr_t)end % DT_MOVE_ALIGNMENT);
    if (used == 0)
        return;
    for (unsigned i = place.thread; i < DT_MOVE_ALIGNMENT - used; i += place.num_threads)
        end[i] = 0;
}

typedef struct chunk {
    char *tensor, *place; /* the first element, in the tensor and in the buffer */
    int64_t count;
    int is_last; /* of its tensor */
} chunk_t;

template <typename ARGS>
DT_DEVICE chunk_t chunk_at(const ARGS &args, uint32_t index, int tensor_bytes, int buffer_bytes)
{
    const dt_move_entry_t &entry = args.entries[find_entry(args, index)];
    const int64_t begin = (int64_t)(index - entry.first_chunk) * args.head.chunk;
    const int64_t left = entry.count - begin;
    chunk_t found;
    found.tensor = (char *)entry.tensor + begin * tensor_bytes;
    found.place =
        args.head.buffer + (int64_t)entry.place * DT_MOVE_ALIGNMENT + begin * buffer_bytes;
    found.is_last = left <= args.head.chunk;
    found.count = found.is_last ? left : args.head.chunk;
    return found;
}

/* `size`: bytes of an element. */
template <typename MAP, typename ARGS>
DT_DEVICE void move_all(const ARGS &args, int size, const place_t &place)
{
    for (uint32_t i = place.block; i < args.head.num_chunks; i += place.num_blocks) {
        const chunk_t chunk = chunk_at(args, i, size, size);
        const char *from = args.head.unpacks ? chunk.place : chunk.tensor;
        char *to = args.head.unpacks ? chunk.tensor : chunk.place;
        move_span<MAP>(args.head, from, to, chunk.count * size, place);
        if (chunk.is_last && !args.head.unpacks)
            clear_padding(chunk.place + chunk.count * size, place);
    }
}

template <typename ARGS> DT_DEVICE void move_copy(const ARGS &args, const place_t &place)
{
    move_all<keep>(args, args.head.element_bytes, place);
}

template <typename T, typename ARGS>
DT_DEVICE void move_scaled(const ARGS &args, const place_t &place)
{
    move_all<scaled<T>>(args, sizeof(T), place);
}

/* ---- Rounding to 16 bits --------------------------------------------------------------------- */

template <typename FROM, typename TO> DT_DEVICE TO convert(const dt_move_head_t &head, FROM from)
{
    const float divisor = (float)head.divisor, scale = (float)head.scale;
    float value = arithmetic<FROM>::load(from);
    if (divisor != 1)
        value = divide(value, divisor);
    return arithmetic<TO>::store(value * scale);
}

/* As many elements as a word of 16 bytes of float32 has. */
#define DT_CONVERT_ELEMENTS 4

template <typename FROM, typename TO> struct converted {
    typedef typename word<DT_CONVERT_ELEMENTS * sizeof(FROM)>::type from_t;
    typedef typename word<DT_CONVERT_ELEMENTS * sizeof(TO)>::type to_t;

    template <typename WORD> DT_DEVICE WORD turn(const dt_move_head_t &head, const from_t &word)
    {
        WORD turned;
        FROM from[DT_CONVERT_ELEMENTS];
        TO to[DT_CONVERT_ELEMENTS];
        memcpy((void *)from, &word, sizeof from);
#pragma unroll
        for (int i = 0; i < DT_CONVERT_ELEMENTS; i++)
            to[i] = convert<FROM, TO>(head, from[i]);
        memcpy(&turned, (const void *)to, sizeof to);
        return turned;
    }
};

/* In words where both ends are aligned to theirs; returns the elements that are done. */
template <typename FROM, typename TO>
DT_DEVICE int64_t convert_words(const dt_move_head_t &head, const char *from, char *to,
                                int64_t count, const place_t &place)
{
    typedef converted<FROM, TO> map;
    typedef typename map::from_t from_t;
    typedef typename map::to_t to_t;
    const int64_t words = count / DT_CONVERT_ELEMENTS;
    if ((uintptr_t)from % sizeof(from_t) != 0 || (uintptr_t)to % sizeof(to_t) != 0)
        return 0;
    move_each<from_t, to_t, map>(head, (const from_t *)from, (to_t *)to, words, place);
    return words * DT_CONVERT_ELEMENTS;
}

template <typename FROM, typename TO>
DT_DEVICE void convert_span(const dt_move_head_t &head, const char *from, char *to, int64_t count,
                            const place_t &place)
{
    int64_t i = convert_words<FROM, TO>(head, from, to, count, place) + place.thread;
    for (; i < count; i += place.num_threads)
        ((TO *)to)[i] = convert<FROM, TO>(head, load_once((const FROM *)from + i));
}

/* Tensors of float32, of T in the buffer. */
template <typename T, typename ARGS>
DT_DEVICE void move_rounded(const ARGS &args, const place_t &place)
{
    for (uint32_t i = place.block; i < args.head.num_chunks; i += place.num_blocks) {
        const chunk_t chunk = chunk_at(args, i, sizeof(float), sizeof(T));
        if (args.head.unpacks)
            convert_span<T, float>(args.head, chunk.place, chunk.tensor, chunk.count, place);
        else
            convert_span<float, T>(args.head, chunk.tensor, chunk.place, chunk.count, place);
        if (chunk.is_last && !args.head.unpacks)
            clear_padding(chunk.place + chunk.count * sizeof(T), place);
    }
}

/* ---- Integers -------------------------------------------------------------------------------- */

/* dtrain_dtype_t, whose numbers never change; this file is no C. */
enum {
    TYPE_U8 = 1,
    TYPE_I8 = 2,
    TYPE_I32 = 3,
    TYPE_I64 = 4,
    TYPE_BOOL = 9,
    TYPE_U16 = 10,
    TYPE_I16 = 11
};

DT_DEVICE int integer_bytes(int type)
{
    if (type == TYPE_I64)
        return 8;
    if (type == TYPE_I32)
        return 4;
    return type == TYPE_U16 || type == TYPE_I16 ? 2 : 1;
}

DT_DEVICE int64_t load_integer(const char *from, int type)
{
    switch (type) {
    case TYPE_U8:
        return *(const uint8_t *)from;
    case TYPE_BOOL:
        return *(const uint8_t *)from != 0;
    case TYPE_I8:
        return *(const int8_t *)from;
    case TYPE_U16:
        return *(const uint16_t *)from;
    case TYPE_I16:
        return *(const int16_t *)from;
    case TYPE_I32:
        return *(const int32_t *)from;
    default:
        return *(const int64_t *)from;
    }
}

/* The low bits that the type has. */
DT_DEVICE void store_integer(char *to, int type, int64_t value)
{
    switch (type) {
    case TYPE_BOOL:
        *(uint8_t *)to = value != 0;
        break;
    case TYPE_U8:
    case TYPE_I8:
        *(uint8_t *)to = (uint8_t)value;
        break;
    case TYPE_U16:
    case TYPE_I16:
        *(uint16_t *)to = (uint16_t)value;
        break;
    case TYPE_I32:
        *(uint32_t *)to = (uint32_t)value;
        break;
    default:
        *(int64_t *)to = value;
        break;
    }
}

typedef struct bounds {
    int64_t low, high;
} bounds_t;

DT_DEVICE bounds_t bounds_of(int type)
{
    const bounds_t none = {INT64_MIN, INT64_MAX};
    const int bits = 8 * integer_bytes(type);
    const int is_signed = type == TYPE_I8 || type == TYPE_I16 || type == TYPE_I32;
    if (type == TYPE_I64)
        return none;
    const int64_t span = (int64_t)1 << bits;
    const bounds_t found = {is_signed ? -span / 2 : 0, is_signed ? span / 2 - 1 : span - 1};
    return found;
}

/* Truncated towards zero and saturated; a NaN gives 0. */
DT_DEVICE int64_t saturate(double value, bounds_t bounds)
{
    if (!(value == value))
        return 0;
    if (value <= (double)bounds.low)
        return bounds.low;
    if (value >= (double)bounds.high)
        return bounds.high;
    return (int64_t)value;
}

/* In: scaled in double. Out: divided, truncating, or with a factor divided and multiplied in double
 * and truncated once. */
template <typename ARGS> DT_DEVICE int64_t scale_integer(const ARGS &args, int64_t value)
{
    const dt_move_head_t &head = args.head;
    if (head.scale == 1)
        return head.divisor == 1 ? value : value / (int64_t)head.divisor;
    return saturate((double)value / head.divisor * head.scale,
                    bounds_of(head.unpacks ? head.tensor_dtype : TYPE_I64));
}

/* Any integers to any others: too rare for words. */
template <typename ARGS> DT_DEVICE void move_integers(const ARGS &args, const place_t &place)
{
    const dt_move_head_t &head = args.head;
    const int tensor_bytes = integer_bytes(head.tensor_dtype);
    const int buffer_bytes = integer_bytes(head.buffer_dtype);
    for (uint32_t i = place.block; i < head.num_chunks; i += place.num_blocks) {
        const chunk_t chunk = chunk_at(args, i, tensor_bytes, buffer_bytes);
        for (int64_t k = place.thread; k < chunk.count; k += place.num_threads) {
            char *in_tensor = chunk.tensor + k * tensor_bytes;
            char *in_buffer = chunk.place + k * buffer_bytes;
            const int64_t value = head.unpacks ? load_integer(in_buffer, head.buffer_dtype)
                                               : load_integer(in_tensor, head.tensor_dtype);
            if (head.unpacks)
                store_integer(in_tensor, head.tensor_dtype, scale_integer(args, value));
            else
                store_integer(in_buffer, head.buffer_dtype, scale_integer(args, value));
        }
        if (chunk.is_last && !head.unpacks)
            clear_padding(chunk.place + chunk.count * buffer_bytes, place);
    }
}

#endif
