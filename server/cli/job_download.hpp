#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "server/cli/rest_client.hpp"

namespace distilld::cli {

struct DownloadOrder {
    std::string job_id;
    std::string to;    ///< folder to unpack into, which must not hold anything; empty = one of the job's id
    std::string file;  ///< tar to write in place of it; "-" = stdout; empty = none
};

struct Download {
    std::string place;        ///< the folder or the file
    std::uint64_t files = 0;  ///< of a folder
    std::uint64_t bytes = 0;
};

/// Takes what a succeeded job has made. A folder or a file appears under its name when all of it has come, or not at
/// all. Errors name the place or what the service said; invalid_input: the folder is in use. Blocks.
Result<Download> download_artifacts(RestClient& client, const DownloadOrder& order);

}  // namespace distilld::cli
