/* isa.h - which of the CPU's vector instruction sets is used: kernels that are compiled once for
 * each of them are picked by it. */
#ifndef DT_BASE_ISA_H
#define DT_BASE_ISA_H

/* Every architecture has its own from the least to the best; all have SCALAR. */
typedef enum dt_isa {
    DT_ISA_SCALAR = 0, /* what every CPU of the architecture has */
    DT_ISA_AVX2 = 1,   /* with F16C */
    DT_ISA_AVX512 = 2, /* F, BW, VL and DQ */
    DT_ISA_NEON = 3,
    DT_ISA_COUNT = 4
} dt_isa_t;

/* The set in use: the best that both this CPU and the cap allow. Thread-safe. */
dt_isa_t dt_isa(void);

/* Its name: "scalar", "avx2", "avx512" or "neon". */
const char *dt_isa_name(void);

/*
 * Caps the set by name; "auto" and "" are no cap; the name of another architecture's set caps
 * nothing. 0, or -1 for an unknown name. Per process; it may be called at any time, since all
 * kernels give the same bits.
 */
int dt_isa_set_cap(const char *name);

#endif
