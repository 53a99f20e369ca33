#include <algorithm>
#include <initializer_list>
#include <string>

#include "api/spec_fields.hpp"
#include "api/spec_rules.hpp"

namespace distilld::api {
namespace {

/// Refuses fields of language models in a job of samples, and the other way round.
class SampleRules {
  public:
    explicit SampleRules(SpecReading& reading) : reading_(reading), spec_(reading.spec) {}

    void check() {
        const bool tensors = spec_.dataset.format == DataFormat::tensors;
        const bool module = spec_.student.format == StudentFormat::torchscript;
        if (trains() && module != tensors) {
            conflict("/dataset/format", module ? "must be \"tensors\": a TorchScript student takes samples"
                                               : "is \"tensors\", which takes /student/format \"torchscript\"");
        }
        if (!module) {
            refuse({"/student/inputs", "/student/outputs", "/training/losses"},
                   "is for /student/format \"torchscript\"");
            if (spec_.student.dtype == Dtype::fp64) {
                conflict("/student/dtype", "is fp64, which is for /student/format \"torchscript\"");
            }
        }
        if (!tensors) {
            refuse({"/teacher/module", "/teacher/inputs", "/teacher/outputs"}, "is for /dataset/format \"tensors\"");
            return;
        }
        refuse({"/student/init",
                "/student/config",
                "/student/tokenizer",
                "/student/lora",
                "/student/quantization",
                "/dataset/packing",
                "/dataset/overflow",
                "/dataset/completion_only_loss",
                "/dataset/teacher_sequence_length",
                "/teachers",
                "/teacher/model_dir",
                "/teacher/tokenizer",
                "/teacher/top_k",
                "/teacher/targets",
                "/training/gradient_checkpointing",
                "/teacher/store_format",
                "/teacher/store_p",
                "/teacher/store_samples",
                "/training/beta",
                "/training/temperature",
                "/eval/sample_prompts"},
               "is for language models, not for /dataset/format \"tensors\"");
        if (reading_.given("/training/kd_ratio") && spec_.training.kd_ratio != (spec_.has_teacher() ? 1.0 : 0.0)) {
            conflict("/training/kd_ratio", "is for language models: give the terms of /training/losses weights");
        }
        if (spec_.dataset.sequence_length > 1) {
            conflict("/dataset/sequence_length", "is for tokens: a sample is one position");
        }
        spec_.dataset.sequence_length = 1;
        const bool local = spec_.teacher() != nullptr && !local_model_of(*spec_.teacher()).empty();
        for (Dtype* dtype : {&spec_.student.dtype, local ? &spec_.teacher()->dtype : nullptr}) {
            if (dtype != nullptr && *dtype == Dtype::auto_select) {
                *dtype = Dtype::fp32;  // what the module computes in is part of its author's design
            }
        }
        if (spec_.training.batch_size_auto) {
            conflict("/training/batch_size", "\"auto\" measures language models only: give a number");
        }
        if (trains() && module) {
            check_losses();
        }
        if (const TeacherSpec* teacher = spec_.teacher()) {
            if (can_be_asked(*teacher)) {
                require("/teacher/inputs", teacher->inputs, "the tensors of the data that the teacher gets");
            }
            require("/teacher/outputs", teacher->outputs, "the names of the tensors that the teacher returns");
        }
    }

  private:
    [[nodiscard]] bool trains() const { return spec_.kind == JobKind::train; }

    void conflict(const std::string& pointer, const std::string& why) { reading_.violate(pointer, "conflict", why); }

    /// A default may be given: a spec that was written has every field.
    void refuse(std::initializer_list<const char*> pointers, const char* why) {
        for (const char* pointer : pointers) {
            const SpecField* field = spec_table().field(pointer);
            const bool matters = field == nullptr || field->kind.write(spec_) != field->kind.initial();
            if (reading_.given(pointer) && matters) {
                conflict(pointer, why);
            }
        }
    }

    void require(const char* pointer, const auto& list, const char* what) {
        if (list.empty() && !(reading_.given(pointer) && !reading_.good.contains(pointer))) {
            reading_.require(pointer, what);
        }
    }

    void check_losses() {
        require("/student/inputs", spec_.student.inputs, "the tensors of the data that forward() takes");
        require("/student/outputs", spec_.student.outputs, "names for the tensors that forward() returns");
        require("/training/losses", spec_.training.losses,
                "what the student learns, such as [{\"kind\": \"mse\", \"output\": \"y\", \"target\": "
                "\"teacher.y\"}]");
        bool of_teacher = false;
        for (std::size_t i = 0; i < spec_.training.losses.size(); ++i) {
            const LossTerm& term = spec_.training.losses[i];
            const std::string pointer = "/training/losses/" + std::to_string(i);
            if (std::ranges::find(spec_.student.outputs, term.output) == spec_.student.outputs.end()) {
                conflict(pointer + "/output", "is \"" + term.output + "\", which is not in /student/outputs");
            }
            if (term.temperature != 1 && term.kind != TensorLoss::kl) {
                conflict(pointer + "/temperature", "is for kl");
            }
            if (const auto name = name_at_teacher(term)) {
                of_teacher = true;
                check_target(pointer + "/target", std::string(*name));
            }
        }
        if (spec_.teacher() != nullptr && !of_teacher) {
            conflict("/teacher", "is given, but no target of /training/losses begins with \"teacher.\"");
        }
    }

    void check_target(const std::string& pointer, const std::string& name) {
        const TeacherSpec* teacher = spec_.teacher();
        if (teacher == nullptr) {
            conflict(pointer, "is an output of the teacher, but the spec has no teacher");
        } else if (std::ranges::find(teacher->outputs, name) == teacher->outputs.end()) {
            conflict(pointer, "is \"teacher." + name + "\", and \"" + name + "\" is not in /teacher/outputs");
        }
    }

    SpecReading& reading_;
    JobSpec& spec_;
};

}  // namespace

void samples_have_their_fields(SpecReading& reading) {
    SampleRules(reading).check();
}

}  // namespace distilld::api
