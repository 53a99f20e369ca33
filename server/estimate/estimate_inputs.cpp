#include "server/estimate/estimate_inputs.hpp"

#include <sstream>
#include <utility>

#include "base/cores.hpp"
#include "models/families/student_config.hpp"

namespace distilld {

EstimateInputs read_estimate_inputs(const JobSpec& spec, JobInspection inspection, std::vector<std::string>& notes) {
    EstimateInputs inputs;
    if (spec.kind == JobKind::generate) {
        return inputs;
    }
    inputs.bf16 = multiplies_bf16(cpuinfo()) || spec.student.device.starts_with("cuda");
    inputs.cores = core_count();
    inputs.student = std::move(inspection.student);
    inputs.rows = inspection.rows;
    if (const TeacherSpec* teacher = spec.teacher(); teacher != nullptr && !teacher->model_dir.empty()) {
        if (auto config = models::read_model_config(teacher->model_dir)) {
            inputs.local_teacher = std::move(*config);
        } else {
            notes.push_back("memory: without that of the teacher: " + config.error().message);
        }
    }
    const bool by_rows =
        spec.training.micro_batches_auto || (!spec.training.max_steps && !spec.training.batch_size_auto);
    if (!inputs.rows && by_rows) {
        notes.push_back("steps: dataset.train has more than " + std::to_string(kMaxInspectedData >> 20U) +
                        " MiB, and is read when the job starts");
    }
    return inputs;
}

std::string shape_key(const JobSpec& spec) {
    const auto config = models::read_student_config(spec.student);
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

}  // namespace distilld
