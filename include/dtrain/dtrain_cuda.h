/*
 * dtrain_cuda.h - tensors in the memory of GPUs.
 *
 * Operations of dtrain.h take tensors whose `device` is DTRAIN_DEVICE_CUDA: `in` and `out` are then
 * memory of this rank's GPU, and `stream` is the cudaStream_t in which the program makes the input
 * and uses the output. A training step waits for no GPU:
 *
 *     backward(gradients, stream); // launches kernels
 *     dtrain_tensor_t tensor = {.struct_size = sizeof tensor, .name = "gradients", .in = gradients,
 *                               .out = gradients, .ndim = 1, .shape = &count,
 *                               .dtype = DTRAIN_DTYPE_F32, .device = DTRAIN_DEVICE_CUDA,
 *                               .stream = stream};
 *     dtrain_allreduce_async(&tensor, &options, &handle);
 *     dtrain_stream_wait(handle, stream);
 *     update(parameters, gradients, stream);
 *     dtrain_wait(handle); // not before the next step: it tells of what failed on the GPU
 *     dtrain_release(handle);
 *
 * What is in the stream when the operation is submitted comes before it; what is put into it later
 * does not, until dtrain_stream_wait.
 *
 *   The GPU   A rank uses one: that whose memory it submits first; or, asked for memory before, the
 *             current one when that is not number 0, else number local_rank modulo their count.
 *             CUDA and NCCL are loaded when a program first has something for a GPU, and the ranks
 *             of a process set are connected at its first operation (docs/gpu.md).
 *   Bits      NCCL adds ranks' values in orders of its own, and rounds fp16 and bf16 at each step:
 *             "Same bits" of dtrain.h holds between the ranks, but not with host memory, and
 *             between fused and unfused tensors only for minimum, maximum and integers. Staged
 *             through host memory (setting gpu) it holds in full.
 *   Host      Adasum, sparse tensors and codecs are the host's work, with the host's bits: tensors
 *             are copied to pinned memory and back, with or without NCCL; only the codecs fp16 and
 *             bf16 go over NCCL, where it is there, and then the sum is divided and scaled in fp32
 *             and not rounded again. They can be waited for in a stream like all others. A sparse
 *             allreduce takes its rows in the call, and so waits there for its stream; its output,
 *             indices too, lies on the GPU.
 *   Memory    A tensor may lie in any memory of the GPU. NCCL works without copies of its own on
 *             what lies in memory of dtrain_mem_alloc (DTRAIN_DEVICE_CUDA), or of a gradient set,
 *             on all ranks. Where it does so on some only it costs a copy, so use one kind for a
 *             tensor.
 *   Blocking  dtrain_allreduce and other calls without a dtrain_tensor_t find out by themselves
 *             where their vectors lie, once this rank's GPU is chosen: call dtrain_cuda_device
 *             first, on all ranks. On a GPU they work in the default stream, and return when done.
 *   Outputs   With `out` NULL where dtrain.h allows that, the library provides memory of the GPU.
 *             dtrain_output tells of it when the operation is done, or when dtrain_stream_wait has
 *             come back: what is put into that stream then may use it. dtrain_release waits until
 *             the GPU has done all that it was given, and frees it. In a callback it does not wait:
 *             the memory is freed by the next dtrain_release outside of one, or by dtrain_shutdown.
 *             To allocate takes a GPU long: where time counts, bring `out`.
 *
 * Needs no header of CUDA: streams are void *.
 */
#ifndef DTRAIN_DTRAIN_CUDA_H
#define DTRAIN_DTRAIN_CUDA_H

#include <dtrain/dtrain.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lets `stream` (a cudaStream_t of this rank's GPU; NULL: the default one) wait for an operation on
 * a GPU: what is put into it from now on comes after the operation. Blocks the calling thread until
 * all ranks have submitted the operation and all of it is in a stream of the library's, but not
 * until the GPU has done it. The handle remains to be waited for and released: only dtrain_wait
 * tells of a failure that shows later, after which the output's content is undefined.
 *
 * Errors: the operation's own, INVALID_HANDLE, INVALID_ARGUMENT (its tensor is in host memory),
 * IN_CALLBACK, NOT_INITIALIZED, COMMUNICATION (CUDA's reason is in the text). Any thread.
 */
DTRAIN_API dtrain_status_t dtrain_stream_wait(dtrain_handle_t handle, void *stream);

/*
 * The number, in this process, of the GPU that this rank uses, which is chosen now when it was not
 * before. UNSUPPORTED with the reason in the text: no libdtrain_nccl.so beside the library, no
 * driver or GPU, or the setting gpu is off. INVALID_ARGUMENT for NULL, NOT_INITIALIZED. A local
 * call; the first one takes as long as CUDA takes to start.
 */
DTRAIN_API dtrain_status_t dtrain_cuda_device(int *device);

/*
 * dtrain_broadcast_params of parameters whose `data` lie in the memory of this rank's GPU: what
 * `stream` (NULL: the default one) holds comes before. Blocks until all is done on the GPU.
 *
 * UNSUPPORTED (no GPU), INVALID_ARGUMENT (memory of the host, or of another GPU); else as
 * dtrain_broadcast_params.
 */
DTRAIN_API dtrain_status_t dtrain_cuda_broadcast_params(const dtrain_param_t *params, int n,
                                                        int root, void *stream);

/* ---- Training ------------------------------------------------------------------------------ */

/*
 * A gradient set whose description says DTRAIN_DEVICE_CUDA has gradients, and its optimizer
 * parameters and state, in this rank's GPU's memory: the library's, or the caller's, of which
 * dtrain_gradset_create says INVALID_ARGUMENT, on all ranks, when it is not. All of dtrain.h holds
 * for them; the host waits for nothing in
 *
 *     for (int step = 0; step < steps; step++) {
 *         for (int i = layers - 1; i >= 0; i--) {
 *             backward(gradients[i], stream);
 *             dtrain_gradset_ready(set, i, stream);
 *         }
 *         dtrain_optimizer_stream_step(optimizer, rate, stream, NULL);
 *     }
 *
 * A gradient is reduced once the GPU has done what `stream` held at its mark (of several passes: at
 * the last one's). Where nobody brought it, zeros are written in the stream of the step's wait.
 * Gradients in the caller's memory are copied by the GPU. Marks may not be made while the stream is
 * being captured into a graph; what is between them may come from one.
 *
 * Calls without a stream (dtrain_gradset_wait, dtrain_optimizer_step and so on) work in the default
 * stream and return when the GPU has done all of it: dtrain_optimizer_broadcast, _save and _load
 * wait for the steps before, but of what the program itself puts into other streams they know
 * nothing. dtrain_gradset_clip works in the stream of the wait before it, and waits for the norm.
 */

/*
 * Ends a step as dtrain_gradset_wait does, but for `stream` (NULL: the default one): what is put
 * into it from now on comes after all gradients are reduced. Blocks the calling thread until all
 * ranks have marked theirs, but not until the GPU has reduced them. After an error, what the
 * gradients hold is undefined; an error that shows on the GPU only later is the next step's, too.
 *
 * INVALID_ARGUMENT (a set in host memory); else as dtrain_gradset_wait.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_stream_wait(dtrain_gradset_t *set, void *stream);

/*
 * Does a step as dtrain_optimizer_step does, with updates in `stream` (NULL: the default one): what
 * is put into it from now on sees the new parameters. Blocks the calling thread as
 * dtrain_gradset_stream_wait does, and until the step before is done; but where max_norm or
 * loss_scale ask for the norm until the GPU has reduced the gradients, since whether the step is
 * one, and its number, follow from it. A rule of the user's is told the stream (dtrain_update_t).
 *
 * INVALID_ARGUMENT (a set in host memory); else as dtrain_optimizer_step. After an error in one
 * rank's GPU itself parameters may differ between ranks.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_stream_step(dtrain_optimizer_t *optimizer,
                                                        double learning_rate, void *stream,
                                                        dtrain_step_info_t *info);

#ifdef __cplusplus
}
#endif

#endif /* DTRAIN_DTRAIN_CUDA_H */
