#!/bin/bash
# run.sh - everything about GPUs on a machine that has one: builds libdtrain in build/gpu, runs the
# tests and measures. The last thing it prints is one table; the exit status is 0 when all went well.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
failures=0
standin=
data=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
jobs=$(nproc)

usage()
{
    cat <<'END'
usage: tests/gpu/run.sh [--help | --standin BUILD]

Needs a GPU, its driver, nvcc, NCCL, an MPI, CMocka and, for training, cuBLAS and Fashion-MNIST
(FASHION_MNIST names its folder); it says first what is missing. Every step has a time limit. On a
machine without a GPU it says so and exits with 77.

--standin: runs what was built in the folder BUILD on the stand-ins for CUDA and NCCL, to test this
script; what it then measures means nothing.
END
}

# The tools that are needed, and what Debian and Ubuntu call them.
check_tools()
{
    local missing=
    PATH=$PATH:/usr/local/cuda/bin
    command -v cmake >/dev/null || missing="$missing cmake"
    command -v make >/dev/null || command -v ninja >/dev/null || missing="$missing make"
    command -v cc >/dev/null || missing="$missing gcc"
    command -v c++ >/dev/null || missing="$missing g++"
    command -v python3 >/dev/null || missing="$missing python3"
    command -v mpicc >/dev/null || missing="$missing libopenmpi-dev and openmpi-bin"
    command -v nvcc >/dev/null || missing="$missing nvcc (CUDA's toolkit, in PATH or /usr/local/cuda/bin)"
    for header in cmocka.h zlib.h nccl.h; do
        echo "#include <$header>" | cat <(printf '%s\n' '#include <stdarg.h>' '#include <stddef.h>' \
            '#include <stdint.h>' '#include <setjmp.h>') - |
            cc -I/usr/local/cuda/include -E - >/dev/null 2>&1 && continue
        case $header in
        cmocka.h) missing="$missing libcmocka-dev" ;;
        zlib.h) missing="$missing zlib1g-dev" ;;
        nccl.h) missing="$missing libnccl-dev (of NVIDIA's repository)" ;;
        esac
    done
    [ -z "$missing" ] && return
    echo "run.sh: missing:$missing" >&2
    exit 1
}

case ${1:-} in
'') ;;
--help | -h)
    usage
    exit 0
    ;;
--standin)
    standin=1
    build=${2:?the folder of a build}
    ;;
*)
    usage >&2
    exit 2
    ;;
esac

if [ -n "$standin" ]; then
    gpus=2
    output=$(mktemp -d)
    trap 'rm -rf "$output"' EXIT
elif ! timeout 60 nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU here (nvidia-smi finds none)"
    exit 77
else
    check_tools
    gpus=$(nvidia-smi -L | grep -c '^GPU')
    output=$build
fi
bin=$build/bin
table=$output/table.txt

row()
{
    printf '%-44s %s\n' "$1" "$2" | tee -a "$table"
}

# check NAME LIMIT COMMAND ... - runs a test; its output is shown when it fails.
check()
{
    local name=$1 limit=$2 log=$output/${1//[^a-zA-Z0-9]/_}.log start=$SECONDS
    shift 2
    if timeout "$limit" "$@" >"$log" 2>&1; then
        row "$name" "passed, $((SECONDS - start)) s"
    else
        row "$name" "FAILED: $log"
        tail -n 20 "$log"
        failures=$((failures + 1))
    fi
}

# measure NAME PATTERN LIMIT COMMAND ... - runs a program and puts its lines that match into the table.
measure()
{
    local name=$1 pattern=$2 limit=$3 log=$output/${1//[^a-zA-Z0-9]/_}.log
    shift 3
    if timeout "$limit" "$@" >"$log" 2>&1 && grep -qE "$pattern" "$log"; then
        grep -E "$pattern" "$log" | while read -r line; do row "$name" "$line"; done
        return
    fi
    row "$name" "FAILED: $log"
    tail -n 20 "$log"
    failures=$((failures + 1))
}

# NCCL takes ranks on one GPU for several machines, and so lets them use it.
shared='NCCL_HOSTID=rank${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} exec "$0" "$@"'

# Builds, or ends with what went wrong.
build_all()
{
    mkdir -p "$build" || exit 1
    if ! timeout 300 cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DDTRAIN_CUDA=ON \
        -DDTRAIN_MPI=ON -DDTRAIN_FAULT_POINTS=ON >"$build.log" 2>&1 ||
        ! timeout 3600 cmake --build "$build" --parallel "$jobs" >>"$build.log" 2>&1; then
        tail -n 30 "$build.log"
        echo "run.sh: the build failed: $build.log" >&2
        exit 1
    fi
}

[ -n "$standin" ] || build_all
mpiexec=$(sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' "$build/CMakeCache.txt")
case $("$mpiexec" --version 2>&1) in
*'Open MPI'* | *OpenRTE* | *PRRTE*) flavor=openmpi ;;
*HYDRA* | *Intel*) flavor=hydra ;;
*) flavor=other ;;
esac
ranks=("$root/tests/support/mpirun.sh" "$flavor" "$mpiexec") # then their number and a program
: >"$table"

if [ -n "$standin" ]; then
    export LD_LIBRARY_PATH=$build/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    row GPU 'none: stand-ins'
else
    row GPU "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1), $gpus of them"
    row versions "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/CUDA \1/p'), $(uname -r), commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null)"
    check 'kernels as host code' 600 ctest --test-dir "$build" -L unit -L cuda --output-on-failure
fi

# Several ranks on one GPU; NCCL takes them for several machines' and so lets them.
on_one_gpu=(env CUDA_VISIBLE_DEVICES=0 STANDIN_SAME_UUID=1)
loopback=(NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_MAX_CTAS=4
    NCCL_MULTI_RANK_GPU_ENABLE=1)
for name in neighbours operations outputs through_host random registered sets training; do
    program=$build/tests/gpu/$name
    most=$gpus
    if [ "$name" = random ] && [ "$gpus" -gt 5 ]; then most=5; fi # its programs are for no more
    check "$name, one rank" 300 "${ranks[@]}" 1 "$program"
    check "$name, staged, two ranks on a GPU" 300 "${on_one_gpu[@]}" DTRAIN_GPU=staged \
        "${ranks[@]}" 2 "$program"
    check "$name, NCCL, two ranks on a GPU" 900 "${on_one_gpu[@]}" DTRAIN_GPU=shared \
        "${loopback[@]}" "${ranks[@]}" 2 bash -c "$shared" "$program"
    if [ "$gpus" -ge 2 ]; then
        check "$name, $most ranks" 900 "${ranks[@]}" "$most" "$program"
    fi
done
python=$(sed -n 's/^DT_PYTHON:[^=]*=//p' "$build/CMakeCache.txt")
if "$python" -c 'import numpy' 2>/dev/null; then
    export DTRAIN_LIBRARY=$build/lib/libdtrain.so PYTHONPATH=$root/src/python PYTHONDONTWRITEBYTECODE=1
    scripts=(test_gpu)
    if "$python" -c 'import torch' 2>/dev/null; then scripts+=(test_gpu_torch); fi
    for name in "${scripts[@]}"; do
        script=("$python" "$root/tests/python/$name.py")
        check "Python, $name, one rank" 300 "${ranks[@]}" 1 "${script[@]}"
        check "Python, $name, staged, two ranks on a GPU" 300 "${on_one_gpu[@]}" \
            DTRAIN_GPU=staged "${ranks[@]}" 2 "${script[@]}"
    done
else
    row 'Python' 'skipped: no numpy'
fi
# NCCL asks CUDA for what a machine may not have, and goes on without: calls that fail are no finding.
for tool in memcheck racecheck; do
    sanitize=(compute-sanitizer --tool "$tool" --error-exitcode 1)
    [ "$tool" = memcheck ] && sanitize+=(--report-api-errors no)
    if [ -z "$standin" ] && command -v compute-sanitizer >/dev/null; then
        for name in operations outputs through_host registered training; do
            check "compute-sanitizer, $tool, $name" 1800 "${sanitize[@]}" "$build/tests/gpu/$name"
        done
        [ -x "$bin/mlp_cuda" ] && check "compute-sanitizer, $tool, mlp_cuda" 1800 \
            "${sanitize[@]}" "$bin/mlp_cuda" --synthetic --layers 100,60,20,7 --steps 10 --precision bf16
    else
        row "compute-sanitizer, $tool" 'skipped: it is not installed'
    fi
done

measure 'pack and unpack' 'GB/s' 300 "$build/tests/gpu/bench_move" ${standin:+100000}
measure 'beside a bare ncclAllReduce, 1 rank' 'bytes' 600 "${ranks[@]}" 1 \
    "$build/tests/gpu/bench_overhead" ${standin:+4096}
if [ "$gpus" -ge 2 ]; then
    measure "beside a bare ncclAllReduce, $gpus ranks" 'bytes' 600 "${ranks[@]}" "$gpus" \
        "$build/tests/gpu/bench_overhead" ${standin:+4096}
fi

# What the trainers are asked for; on stand-ins little of it, since these compute on the CPU.
if [ -n "$standin" ]; then
    wide=(--layers 64,64,64,8 --batch-per-rank 128 --samples 1024 --steps 6)
    real=(--steps 20)
    export OPENBLAS_NUM_THREADS=1
else
    wide=(--layers 8192,8192,8192,8192,8192,256 --batch-per-rank 8192 --samples $((16384 * gpus))
        --steps 40 --lr 0.0001 --tune)
    real=()
fi
if [ -x "$bin/mlp_cuda" ] && { [ -z "$standin" ] || [ -e "$build/standin/libcublasLt.so.13" ]; }; then
    for name in capture trainer_parts; do
        check "$name" 300 "$build/tests/gpu/$name"
    done
    check 'mlp_cublas' 300 "${ranks[@]}" 1 "$bin/mlp_cublas"
    for precision in fp32 tf32 bf16; do
        for option in '' --graph; do
            [ "$precision" = bf16 ] && bar=', of which 60% are wanted' || bar=
            measure "wide layers, $precision${option:+, $option}$bar" 'TFLOP/s|in epilogues' 900 \
                "${ranks[@]}" "$gpus" "$bin/mlp_cuda" --synthetic "${wide[@]}" \
                --precision "$precision" $option
        done
        if [ -d "$data" ]; then
            measure "Fashion-MNIST, $precision" '^RESULT' 900 "${ranks[@]}" "$gpus" "$bin/mlp_cuda" \
                --data "$data" --precision "$precision" "${real[@]}"
        fi
    done
    if [ -d "$data" ]; then
        for option in --graph --sharded; do
            measure "Fashion-MNIST, $option" '^RESULT' 900 "${ranks[@]}" "$gpus" "$bin/mlp_cuda" \
                --data "$data" "$option" "${real[@]}"
        done
    else
        row 'Fashion-MNIST' "skipped: no data in $data"
    fi
else
    row training 'skipped: without cuBLAS there are no trainers'
fi

printf '\n'
cat "$table"
printf '%d failed\n' "$failures"
[ "$failures" -eq 0 ]
