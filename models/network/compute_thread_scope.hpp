#pragma once

#include <ATen/Parallel.h>

#include <thread>

namespace distilld::models {

/// While it lives, the calling thread may set its own number of threads for libtorch; others keep that of the process.
/// (at::set_num_threads() sets the caller's and, for threads that have not computed yet, the process's.)
class ComputeThreadScope {
  public:
    ComputeThreadScope() = default;
    ~ComputeThreadScope() {
        std::thread([this] { at::set_num_threads(of_process_); }).join();
    }
    ComputeThreadScope(const ComputeThreadScope&) = delete;
    ComputeThreadScope& operator=(const ComputeThreadScope&) = delete;

  private:
    // The query also sets this thread's number to the process's, as its first tensor operation would.
    int of_process_ = at::get_num_threads();
};

}  // namespace distilld::models
