#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files/folder_fence.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

/// The error of a run that was told to stop while it prepared.
[[nodiscard]] Error stopped_on_request();

/// Creates the folders, checks that they are writable (waits while the disk is full), and takes each distinct folder.
/// Waits for another run that is just ending; one that continues is an error, or replaced if it is an earlier attempt
/// of the same job. Error of kind `cancelled`: `control` was. Executor of `executors.io`.
boost::asio::awaitable<Result<std::vector<FolderFence>>> take_folders(std::vector<std::filesystem::path> folders,
                                                                      JobAttempt attempt, GraphExecutors executors,
                                                                      RunControl& control, EmitEvent emit);

}  // namespace distilld
