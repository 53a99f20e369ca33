#pragma once

#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"

namespace distilld {

/// Gives a worker its socket if it was started with a pipe at stdin and one at stdout instead, as srun does: a thread
/// copies between them. The end of stdin is the end of the parent.
class StdioBridge {
  public:
    /// `in` and `out` are what the parent writes to and reads from.
    static Result<std::unique_ptr<StdioBridge>> make(Descriptor in, Descriptor out);
    /// Takes this process's stdin, which nobody else may read, and stdout: what is written there goes to stderr from
    /// then on.
    static Result<std::unique_ptr<StdioBridge>> take_over();
    /// Waits until the parent has all that was written to the socket. The worker's end must be closed.
    ~StdioBridge() = default;
    StdioBridge(const StdioBridge&) = delete;
    StdioBridge& operator=(const StdioBridge&) = delete;

    /// The worker's end, for make_worker_channel(). Once.
    [[nodiscard]] int release_socket() noexcept { return worker_.release(); }

  private:
    StdioBridge(Descriptor in, Descriptor out, Descriptor ours, Descriptor worker);

    Descriptor in_, out_, ours_, worker_;
    std::jthread copying_;  // joined first
};

}  // namespace distilld
