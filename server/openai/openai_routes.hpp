#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/openai/file_store.hpp"

namespace distilld::openai {

/// Dependencies of the routes. The manager must outlive the server that gets the routes.
struct OpenAiParts {
    JobManager& manager;
    std::shared_ptr<FileStore> files;
    std::filesystem::path outputs;   ///< absolute; each job created here writes to its own folder below
    std::uint64_t upload_limit = 0;  ///< maximum bytes of one uploaded file
};

/// The part of OpenAI's API for training models: /v1/files, /v1/fine_tuning/jobs and /v1/models. Another view of the
/// jobs of /v1/jobs.
std::vector<http::Route> make_openai_routes(const OpenAiParts& parts);

std::vector<http::Route> make_file_routes(const OpenAiParts& parts);
std::vector<http::Route> make_fine_tuning_routes(const OpenAiParts& parts);
std::vector<http::Route> make_model_routes(const OpenAiParts& parts);

}  // namespace distilld::openai
