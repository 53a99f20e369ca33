#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_types.hpp"
#include "server/openai/exported_files.hpp"
#include "server/openai/file_catalogue.hpp"

/// The service's objects in OpenAI's shapes (openai-python, types/…). Pure.
namespace distilld::openai {

/// Unix time in seconds of an RFC 3339 text; nullopt for other text.
[[nodiscard]] std::optional<std::int64_t> unix_time_of(const std::string& text);

[[nodiscard]] boost::json::object file_object(const UploadedFile& file);
/// `created_at`: when the job ended.
[[nodiscard]] boost::json::object file_object(const ExportedFile& file, std::int64_t created_at);

/// One of OpenAI's states, or `paused`.
[[nodiscard]] std::string_view fine_tuning_status(api::JobState state);

/// "distilld:NAME:JOBID": the job's name, or else the name of the student's folder.
[[nodiscard]] std::string model_name(const api::Job& job);
/// Id of the job in such a name; nullopt for other names.
[[nodiscard]] std::optional<std::string> job_of_model(std::string_view name);
[[nodiscard]] boost::json::object model_object(const api::Job& job);

/// `job` with its specs. `results`: the files of its export.
[[nodiscard]] boost::json::object fine_tuning_job(const api::Job& job, const std::vector<ExportedFile>& results);

[[nodiscard]] std::string event_id(const std::string& job_id, std::uint64_t sequence);
/// The sequence in an event id of this job; nullopt for other ids.
[[nodiscard]] std::optional<std::uint64_t> sequence_of_event(const std::string& job_id, std::string_view event_id);
[[nodiscard]] boost::json::object fine_tuning_event(const std::string& job_id, const api::JobEvent& event);

/// Losses of a checkpoint, if known.
struct CheckpointLosses {
    std::optional<double> train_loss;
    std::optional<double> valid_loss;
};
[[nodiscard]] std::string checkpoint_id(const std::string& job_id, const api::JobCheckpoint& checkpoint);
[[nodiscard]] boost::json::object fine_tuning_checkpoint(const api::Job& job, const api::JobCheckpoint& checkpoint,
                                                         const CheckpointLosses& losses);

/// {"object": "list", …} with first_id and last_id.
[[nodiscard]] boost::json::object list_object(boost::json::array data, bool has_more);

}  // namespace distilld::openai
