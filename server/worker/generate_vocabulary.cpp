#include "server/worker/generate_vocabulary.hpp"

#include <cstddef>
#include <memory>
#include <optional>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "models/families/adapter_config.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20U;
constexpr std::size_t kMaxConfigDepth = 32;

/// The vocab_size of a config.json; nullopt if it has none.
std::optional<std::uint32_t> vocabulary_of(const std::string& config) {
    const auto parsed = parse_json_text(config, kMaxConfigDepth);
    const auto* object = parsed ? parsed->if_object() : nullptr;
    const auto* size = object != nullptr ? object->if_contains("vocab_size") : nullptr;
    return size != nullptr && size->is_number() ? JsonMembers::whole_number<std::uint32_t>(*size) : std::nullopt;
}

}  // namespace

NamedModel model_of_answers(const JobSpec& spec) {
    if (!spec.student.model.empty() || spec.student.config_json) {
        return {spec.student.model, "/student/model"};
    }
    return {spec.teacher()->model_dir, "/teacher/model_dir"};
}

Result<std::uint32_t> vocabulary_of_answers(const JobSpec& spec) {
    const StudentSpec& student = spec.student;
    const NamedModel model = model_of_answers(spec);
    std::optional<std::uint32_t> found = vocabulary_of(student.config_json.value_or(""));
    std::string place = "/student/config";
    if (!found && !model.folder.empty()) {
        const auto file = models::folder_with(model.folder, "config.json") / "config.json";
        const Result<std::string> text = read_text_file(file, kMaxConfigBytes);
        if (!text) {
            return Error{text.error().kind, std::string(model.pointer) + ": " + text.error().message};
        }
        found = vocabulary_of(*text);
        place = std::string(model.pointer) + ": " + file.string();
    }
    if (found && *found > 0) {
        return *found;
    }
    if (student.config_json || !model.folder.empty()) {
        return invalid_input(place + ": names no vocab_size");
    }
    if (student.tokenizer.empty()) {
        return invalid_input(
            "/student/tokenizer: neither it nor /student/model is given: name the folder of the tokenizer that teacher "
            "and student share; for data with ready-made input_ids, or for bytes (257), /student/config/vocab_size is "
            "enough");
    }
    const Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(student.tokenizer);
    if (!tokenizer && tokenizer.error().kind == ErrorKind::path_not_allowed) {
        return invalid_at("/student/tokenizer", tokenizer.error());
    }
    if (!tokenizer || !*tokenizer) {
        const std::string why = tokenizer ? student.tokenizer + " has no tokenizer.json" : tokenizer.error().message;
        return invalid_input("/student/tokenizer: " + why + "; or set /student/config/vocab_size");
    }
    return (*tokenizer)->vocabulary_size();
}

}  // namespace distilld
