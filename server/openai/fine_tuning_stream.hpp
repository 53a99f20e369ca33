#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/http_message.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld::openai {

/// The events of a job after a sequence, as OpenAI's clients read a stream: `data:` with an event object each, and at
/// the job's end `data: [DONE]`. The manager must outlive it.
[[nodiscard]] std::unique_ptr<api::BodyStream> make_fine_tuning_stream(JobManager& manager, std::string job_id,
                                                                       std::uint64_t after);

}  // namespace distilld::openai
