#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "server/cli/jobs/rest_client.hpp"

namespace distilld::cli {

struct DownloadOrder {
    std::string job_id;
    std::string to;    ///< folder to unpack into, which must be empty or missing; empty = named by the job's id
    std::string file;  ///< tar to write instead; "-" = stdout; empty = none
};

struct Download {
    std::string place;        ///< the folder or the file
    std::uint64_t files = 0;  ///< in a folder
    std::uint64_t bytes = 0;
};

/// Downloads the artifacts of a succeeded job. A folder or file appears under its name only when it is complete. Errors
/// name the place, or repeat the service's answer; invalid_input: the folder is in use. Blocks.
Result<Download> download_artifacts(RestClient& client, const DownloadOrder& order);

}  // namespace distilld::cli
