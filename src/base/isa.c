#include "base/isa.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[DT_ISA_COUNT] = {[DT_ISA_SCALAR] = "scalar",
                                                [DT_ISA_AVX2] = "avx2",
                                                [DT_ISA_AVX512] = "avx512",
                                                [DT_ISA_NEON] = "neon"};

/* This architecture's, from the least to the best. */
static const dt_isa_t ladder[] = {
    DT_ISA_SCALAR,
#if defined(__x86_64__)
    DT_ISA_AVX2,
    DT_ISA_AVX512,
#elif defined(__aarch64__)
    DT_ISA_NEON,
#endif
};

#define NUM_RUNGS (sizeof ladder / sizeof ladder[0])
#define NOT_CHOSEN (-1)

/* [atomic] relaxed: a number that stands for itself. */
static atomic_int chosen = NOT_CHOSEN;

#if defined(__x86_64__)
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int cpu_runs(dt_isa_t isa)
{
    __builtin_cpu_init();
    if (isa == DT_ISA_AVX2)
        return __builtin_cpu_supports("avx2") && has_f16c();
    if (isa == DT_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return 1;
}
#else
static int cpu_runs(dt_isa_t isa)
{
    (void)isa;
    return 1;
}
#endif

static dt_isa_t choose(const char *cap)
{
    dt_isa_t best = ladder[0];
    for (size_t i = 1; i < NUM_RUNGS && strcmp(names[ladder[i - 1]], cap) != 0; i++)
        if (cpu_runs(ladder[i]))
            best = ladder[i];
    return best;
}

dt_isa_t dt_isa(void)
{
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa == NOT_CHOSEN) {
        isa = (int)choose("auto");
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (dt_isa_t)isa;
}

const char *dt_isa_name(void)
{
    return names[dt_isa()];
}

int dt_isa_set_cap(const char *name)
{
    int known = strcmp(name, "") == 0 || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < DT_ISA_COUNT; i++)
        known = known || strcmp(name, names[i]) == 0;
    if (!known)
        return -1;
    atomic_store_explicit(&chosen, (int)choose(name), memory_order_relaxed);
    return 0;
}
