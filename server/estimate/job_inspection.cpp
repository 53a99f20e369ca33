#include "server/estimate/job_inspection.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <utility>

#include "api/spec_fields.hpp"
#include "models/families/adapter_config.hpp"
#include "models/families/module_names.hpp"
#include "models/families/student_config.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/data/lines/line_blocks.hpp"
#include "pipeline/data/tokenizer_choice.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "server/worker/export_owner.hpp"
#include "server/worker/generate_vocabulary.hpp"
#include "server/worker/starting_point.hpp"
#include "server/worker/training_data.hpp"

namespace distilld {
namespace {

/// Whether `text` is a field's pointer or continues one.
bool names_field(std::string_view text) {
    return std::ranges::any_of(api::spec_table().fields, [text](const api::SpecField& field) {
        const auto rest = text.substr(std::min(text.size(), field.pointer.size()));
        return text.starts_with(field.pointer) && (rest.empty() || rest.starts_with('/'));
    });
}

class Inspector {
  public:
    explicit Inspector(const JobSpec& spec) : spec_(spec) {}

    JobInspection perform() {
        if (spec_.kind == JobKind::train && spec_.student.format == StudentFormat::huggingface) {
            check_student();
        }
        check_data();
        if (spec_.kind == JobKind::train) {
            check_folders();
        }
        for (const auto& [name, teacher] : spec_.teachers) {
            check_teacher(teacher, name);
        }
        return std::move(found_);
    }

  private:
    /// Reports the field at the beginning of the message, or else `field`.
    void violate(std::string_view field, const Error& error) {
        const auto end = error.message.find(": ");
        const auto begin = error.message.substr(0, end);
        const bool refused = error.kind == ErrorKind::path_not_allowed;
        std::string code = refused ? to_string(error.kind) : "invalid_value";
        if (end != std::string::npos && (names_field(begin) || begin.starts_with("/teachers/"))) {
            found_.violations.push_back({begin, std::move(code), error.message.substr(end + 2)});
        } else {
            found_.violations.push_back({std::string(field), std::move(code), error.message});
        }
    }

    void check_student() {
        auto config = models::read_student_config(spec_.student);
        if (!config) {
            return violate("/student/model", config.error());
        }
        const auto fits =
            models::check_positions(spec_.dataset.sequence_length, config->decoder.max_position_embeddings);
        if (!fits) {
            violate("/dataset/sequence_length", fits.error());
        }
        if (const auto there = check_modules(*config); !there) {
            violate("/student", there.error());
        }
        found_.student = std::move(*config);
        if (!spec_.student.model.empty() && spec_.student.init == StudentInit::pretrained) {
            found_.not_checked.emplace_back("the weights in student.model");
        }
    }

    /// An existing adapter defines its own modules.
    [[nodiscard]] Result<void> check_modules(const models::ModelConfig& config) const {
        const StudentSpec& student = spec_.student;
        if (student.lora && !models::is_adapter_folder(student.model)) {
            const auto there =
                models::resolve_modules(config, student.lora->target_modules, "/student/lora/target_modules");
            if (!there) {
                return there.error();
            }
        }
        if (student.quantization == Quantization::ternary) {
            const auto there = models::resolve_modules(config, student.quantize_modules, "/student/quantize_modules");
            if (!there) {
                return there.error();
            }
        }
        return {};
    }

    /// Nothing here reads TorchScript.
    void check_samples() {
        found_.not_checked.emplace_back("what is in student.model, and whether it fits the data");
        found_.rows = rows_of(TokenizerChoice(), 0, "train", spec_.dataset.train);
        if (!spec_.dataset.eval.empty()) {
            static_cast<void>(rows_of(TokenizerChoice(), 0, "eval", spec_.dataset.eval));
        }
    }

    void check_data() {
        if (spec_.dataset.format == DataFormat::tensors) {
            return check_samples();
        }
        if (spec_.kind == JobKind::train && !found_.student) {
            return;  // its violations have been reported
        }
        const auto vocabulary =
            found_.student ? Result<std::uint32_t>(static_cast<std::uint32_t>(found_.student->decoder.vocab_size))
                           : vocabulary_of_answers(spec_);
        if (!vocabulary) {
            return violate("/student/tokenizer", vocabulary.error());
        }
        const std::string model = found_.student ? spec_.student.model : model_of_answers(spec_).folder;
        const auto choice =
            choose_tokenizer({spec_.student.tokenizer, models::folder_with(model, "tokenizer.json"), *vocabulary});
        if (!choice) {
            return violate("/student/tokenizer", choice.error());
        }
        const auto of_teacher = teacher_tokenizer_of(spec_, *choice);
        if (!of_teacher) {
            return violate("/teacher/tokenizer", of_teacher.error());
        }
        found_.rows = spec_.rollout ? rows_of(*choice, *vocabulary, "prompts", spec_.rollout->prompts)
                                    : rows_of(*choice, *vocabulary, "train", spec_.dataset.train, of_teacher->get());
        if (!spec_.dataset.eval.empty()) {
            static_cast<void>(rows_of(*choice, *vocabulary, "eval", spec_.dataset.eval, of_teacher->get()));
        }
    }

    /// nullopt if not all rows were read.
    std::optional<std::uint64_t> rows_of(const TokenizerChoice& choice, std::uint32_t vocabulary,
                                         const std::string& field, const std::vector<std::string>& files,
                                         const TeacherTokenizer* teacher = nullptr) {
        constexpr std::uint64_t kBlocks = kMaxInspectedData / LineBlocks::kBlockBytes;
        const auto enough = [blocks = std::uint64_t{0}]() mutable { return ++blocks > kBlocks; };
        const DataReading reading{spec_, choice, vocabulary, teacher, [](const std::string&) {}, enough};
        const auto count = [](const auto& loaded) {
            return loaded ? Result<std::uint64_t>((*loaded)->row_count()) : Result<std::uint64_t>(loaded.error());
        };
        const Result<std::uint64_t> rows = spec_.names_teachers()
                                               ? count(load_mixed_rows(reading, field, files, field == "train"))
                                               : count(load_rows(reading, field, files));
        if (rows) {
            return *rows;
        }
        const std::string section = field == "prompts" ? "rollout" : "dataset";
        if (rows.error().kind == ErrorKind::cancelled) {
            found_.not_checked.push_back(section + "." + field + " after its first " +
                                         std::to_string(kMaxInspectedData >> 20U) + " MiB");
        } else {
            violate("/" + section + "/" + field, rows.error());
        }
        return std::nullopt;
    }

    void check_folders() {
        if (const auto ours = check_output(spec_.output, spec_, std::nullopt); !ours) {
            return violate("/output", ours.error());  // its contents belong to that run, too
        }
        if (const auto ours = check_checkpoints(checkpoint_store(spec_), spec_); !ours) {
            violate(spec_.checkpoint.dir.empty() ? "/output" : "/checkpoint/dir", ours.error());
        }
    }

    void check_teacher(const TeacherSpec& teacher, const std::string& name) {
        const std::string field = name.empty() ? "teacher" : "teachers." + name;
        const auto refuse = [&](std::string_view pointer, Error error) {
            error.message = of_named_teacher(std::move(error.message), name);
            violate(pointer, error);
        };
        if (!teacher.endpoints.empty()) {
            boost::asio::io_context nobody_runs_it;
            const auto made =
                make_remote_teacher(nobody_runs_it.get_executor(), nobody_runs_it.get_executor(), teacher);
            if (!made) {
                refuse("/teacher/endpoints", made.error());
            }
            found_.not_checked.push_back(field + ".endpoints, which are not asked");
        }
        if (!teacher.model_dir.empty()) {
            if (const auto config = models::read_model_config(teacher.model_dir); !config) {
                refuse("/teacher/model_dir", invalid_input("/teacher/model_dir: " + config.error().message));
            }
            found_.not_checked.push_back("the weights in " + field + ".model_dir");
        }
        if (!teacher.store.empty()) {
            const bool is_used = !can_be_asked(teacher) || teacher.cache != TeacherCache::off;
            if (const auto reason = no_store_reason(teacher.store); reason && is_used) {
                refuse("/teacher/store", invalid_input("/teacher/store: " + *reason));
            }
            found_.not_checked.push_back("what " + field + ".store holds");
        }
    }

    const JobSpec& spec_;
    JobInspection found_;
};

}  // namespace

JobInspection inspect_job(const JobSpec& spec) {
    return Inspector(spec).perform();
}

}  // namespace distilld
