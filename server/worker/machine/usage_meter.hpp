#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/training/device_memory.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// What to watch besides the process itself.
struct UsageSources {
    std::string device;                                                  ///< as in the metrics; empty: none
    std::shared_ptr<models::DeviceMemory> memory;                        ///< of the device; may be null
    std::vector<std::pair<std::string, std::filesystem::path>> folders;  ///< name and path of each place that is
                                                                         ///< written to
};

/// Resources of this process, read at most once per second on a thread that may wait for a disk. One thread.
class UsageMeter {
  public:
    /// Reads once in the constructor, on the calling thread. `disk` must run all posted work before it ends.
    UsageMeter(boost::asio::any_io_executor disk, UsageSources sources);

    /// The last reading. If it is older than a second, starts a new one and does not wait for it.
    [[nodiscard]] WorkerUsage newest();

  private:
    struct Shared;
    boost::asio::any_io_executor disk_;
    std::shared_ptr<Shared> shared_;  ///< with the reading in progress
};

}  // namespace distilld
