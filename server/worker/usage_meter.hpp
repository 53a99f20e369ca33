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

/// What is watched besides the process itself.
struct UsageSources {
    std::string device;                                                  ///< as the metrics call it; empty: none
    std::shared_ptr<models::DeviceMemory> memory;                        ///< of the device; may be null
    std::vector<std::pair<std::string, std::filesystem::path>> folders;  ///< name and place of what is written to
};

/// What this process takes, looked up at most once a second and on a thread that may wait for a disk. One thread.
class UsageMeter {
  public:
    /// Looks for the first time at once, on the calling thread. `disk` runs what was posted before it ends.
    UsageMeter(boost::asio::any_io_executor disk, UsageSources sources);

    /// What was seen last. Has it looked up anew when that is older than a second; does not wait for it.
    [[nodiscard]] WorkerUsage newest();

  private:
    struct Shared;
    boost::asio::any_io_executor disk_;
    std::shared_ptr<Shared> shared_;  ///< with the look that is under way
};

}  // namespace distilld
