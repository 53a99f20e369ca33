#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/folder_lock.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

/// What a run that was told to stop while it prepared comes to.
[[nodiscard]] Error stopped_on_request();

/// Makes the folders, sees that they can be written to (a full disk is waited out), and takes a lock in each, those
/// that are one folder once. Another run that is just ending is waited for; one that goes on is an error. An error of
/// kind `cancelled`: `control` was. Executor of `executors.io`.
boost::asio::awaitable<Result<std::vector<FolderLock>>> take_folders(std::vector<std::filesystem::path> folders,
                                                                     GraphExecutors executors, RunControl& control,
                                                                     EmitEvent emit);

}  // namespace distilld
