#pragma once

namespace distilld {

/// `distilld-worker train`: one training job, received over the socket at kWorkerProtocolFd, or over stdin and stdout.
/// Returns the exit code: 0 done, 1 failed, 130 stopped on request after a checkpoint.
int run_train_worker(bool over_stdio);

}  // namespace distilld
