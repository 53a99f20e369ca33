#include "models/families/student_config.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "models/families/adapter_config.hpp"
#include "models/families/config_json.hpp"

namespace distilld::models {
namespace {

/// The spec must not change the sizes of pretrained weights; `theirs` is the weights' own config.json.
Result<void> check_sizes(const DecoderConfig& wanted, const DecoderConfig& theirs, const std::string& model) {
    struct Size {
        const char* name;
        std::int64_t DecoderConfig::* member;
    };
    for (const Size& size :
         {Size{"vocab_size", &DecoderConfig::vocab_size}, Size{"hidden_size", &DecoderConfig::hidden_size},
          Size{"intermediate_size", &DecoderConfig::intermediate_size},
          Size{"num_hidden_layers", &DecoderConfig::num_hidden_layers}}) {
        if (wanted.*size.member != theirs.*size.member) {
            return invalid_input("/student/config/" + std::string(size.name) + ": is " +
                                 std::to_string(wanted.*size.member) + ", but the weights in " + model + " have " +
                                 std::to_string(theirs.*size.member) +
                                 ": leave it out, or set /student/init to \"random\" for new weights");
        }
    }
    return {};
}

}  // namespace

Result<ModelConfig> read_student_config(const StudentSpec& student, std::span<const ModelFamily> families) {
    const bool pretrained = !student.model.empty() && student.init == StudentInit::pretrained;
    if (pretrained && !student.lora && is_adapter_folder(student.model)) {
        return invalid_input("/student/model: " + student.model +
                             " holds adapters: give student.lora with their r and alpha to continue their training");
    }
    const JsonPlace in_spec{"", "/student/config"};
    std::string base;
    JsonPlace in_folder;
    if (!student.model.empty()) {
        const std::filesystem::path path = folder_with(student.model, "config.json") / "config.json";
        Result<std::string> text = read_text_file(path, kMaxConfigBytes);
        if (!text) {
            return invalid_at("/student/model", text.error());
        }
        base = std::move(*text);
        in_folder.source = path.string();
    }
    const Result<std::string> merged = merge_config_json(base, in_folder, student.config_json.value_or(""), in_spec);
    if (!merged) {
        return merged.error();
    }
    Result<ModelConfig> config = parse_model_config(*merged, student.config_json ? in_spec : in_folder, families);
    if (config && pretrained && student.config_json) {
        const Result<ModelConfig> own = parse_model_config(base, in_folder, families);
        const Result<void> fits = own ? check_sizes(config->decoder, own->decoder, student.model) : Result<void>();
        if (!fits) {
            return fits.error();
        }
    }
    return config;
}

Result<void> check_positions(std::uint32_t sequence_length, std::int64_t max_positions) {
    if (static_cast<std::int64_t>(sequence_length) <= max_positions) {
        return {};
    }
    return invalid_input("/dataset/sequence_length: " + std::to_string(sequence_length) +
                         " exceeds the student's max_position_embeddings of " + std::to_string(max_positions));
}

}  // namespace distilld::models
