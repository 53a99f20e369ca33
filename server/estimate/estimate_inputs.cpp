#include "server/estimate/estimate_inputs.hpp"

#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <system_error>

#include "base/json_members.hpp"
#include "models/families/adapter_config.hpp"
#include "pipeline/core/overflow_in_force.hpp"
#include "pipeline/data/data_files.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/packed_dataset.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

std::string cpuinfo() {
    std::ifstream file("/proc/cpuinfo");
    return {std::istreambuf_iterator<char>(file), {}};
}

Result<models::ModelConfig> student_config(const StudentSpec& student) {
    if (student.config_json) {
        return models::parse_model_config(*student.config_json, JsonPlace{"", "/student/config"});
    }
    return models::read_model_config(models::folder_with(student.model, "config.json"));
}

/// Why the data are not read; empty: they may be.
std::string too_much(const std::vector<fs::path>& files) {
    std::uint64_t bytes = 0;
    for (const fs::path& file : files) {
        std::error_code failed;
        if (const auto name = file.string(); name.ends_with(".gz") || name.ends_with(".zst")) {
            return name + " is packed";
        }
        const auto size = fs::file_size(file, failed);
        if (failed) {
            return file.string() + ": " + failed.message();
        }
        bytes += size;
    }
    return bytes <= kMaxEstimatedData ? std::string() : "it has " + std::to_string(bytes >> 20U) + " MiB";
}

std::optional<std::uint64_t> rows_of(const JobSpec& spec, std::uint32_t vocabulary, std::vector<std::string>& notes) {
    const std::string note = "steps: dataset.train is read when the job starts: ";
    const auto files = find_data_files(spec.dataset.train, "/dataset/train");
    if (!files) {
        notes.push_back(note + files.error().message);
        return std::nullopt;
    }
    if (std::string why = too_much(*files); !why.empty()) {
        notes.push_back(note + why);
        return std::nullopt;
    }
    if (!spec.teachers.empty()) {
        notes.push_back(note + "it is divided among several teachers");
        return std::nullopt;
    }
    const auto model = models::folder_with(spec.student.model, "tokenizer.json");
    const auto choice = choose_tokenizer({spec.student.tokenizer, model, vocabulary});
    if (!choice) {
        notes.push_back(note + choice.error().message);
        return std::nullopt;
    }
    DatasetOptions options;
    options.sequence_length = spec.dataset.sequence_length;
    options.packing = spec.dataset.packing == Packing::joined;
    options.overflow = overflow_in_force(spec.dataset);
    options.vocabulary_size = vocabulary;
    options.no_tokenizer_reason = choice->refusal;
    options.completion_only_loss = spec.dataset.completion_only_loss;
    options.threads = 1;  // jobs run on the others
    auto rows = load_jsonl_dataset(*files, choice->tokenizer.get(), options);
    if (!rows) {
        notes.push_back(note + rows.error().message);
        return std::nullopt;
    }
    std::shared_ptr<const Dataset> loaded(std::move(*rows));
    if (spec.dataset.packing == Packing::documents) {
        loaded = pack_documents(std::move(loaded), spec.dataset.sequence_length);
    }
    if (loaded->token_count() != loaded->tokens_read()) {
        notes.push_back("tokens: " + std::to_string(loaded->token_count()) + " of the " +
                        std::to_string(loaded->tokens_read()) + " of dataset.train are used");
    }
    return loaded->row_count();
}

}  // namespace

EstimateInputs read_estimate_inputs(const JobSpec& spec, std::vector<std::string>& notes) {
    EstimateInputs inputs;
    if (spec.kind == JobKind::generate) {
        return inputs;
    }
    inputs.bf16 = multiplies_bf16(cpuinfo()) || spec.student.device.starts_with("cuda");
    if (auto config = student_config(spec.student)) {
        inputs.student = std::move(*config);
    } else {
        notes.push_back("parameters, memory: " + config.error().message);
    }
    if (spec.teacher && !spec.teacher->model_dir.empty()) {
        if (auto config = models::read_model_config(spec.teacher->model_dir)) {
            inputs.local_teacher = std::move(*config);
        } else {
            notes.push_back("memory: without the teacher's: " + config.error().message);
        }
    }
    const bool automatic = spec.training.micro_batches_auto;
    if (inputs.student && (automatic || (!spec.training.max_steps && !spec.training.batch_size_auto))) {
        inputs.rows = rows_of(spec, static_cast<std::uint32_t>(inputs.student->decoder.vocab_size), notes);
    }
    return inputs;
}

std::string shape_key(const JobSpec& spec) {
    const auto config = student_config(spec.student);
    if (!config) {
        return {};
    }
    const auto& decoder = config->decoder;
    std::ostringstream key;
    key << config->family->model_type << ' ' << decoder.vocab_size << ' ' << decoder.hidden_size << ' '
        << decoder.intermediate_size << ' ' << decoder.num_hidden_layers << ' ' << decoder.num_attention_heads << ' '
        << decoder.num_key_value_heads << ' ' << decoder.head_dim << ' ' << spec.dataset.sequence_length << ' '
        << spec.student.device << ' ' << (spec.student.lora ? spec.student.lora->r : 0) << ' '
        << static_cast<int>(spec.student.quantization) << ' ' << spec.training.gradient_checkpointing;
    return key.str();
}

bool multiplies_bf16(const std::string& cpuinfo) {
    const auto begin = cpuinfo.find("\nflags");
    if (begin == std::string::npos) {
        return false;
    }
    std::istringstream flags(cpuinfo.substr(begin + 1, cpuinfo.find('\n', begin + 1) - begin - 1));
    bool tiles = false;
    bool of_tiles = false;
    for (std::string flag; flags >> flag;) {
        if (flag == "avx512_bf16") {
            return true;
        }
        tiles = tiles || flag == "amx_tile";
        of_tiles = of_tiles || flag == "amx_bf16";
    }
    return tiles && of_tiles;
}

}  // namespace distilld
