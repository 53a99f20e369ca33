#include "server/worker/machine/arithmetic.hpp"

#include <algorithm>

#include "pipeline/core/teacher_name.hpp"

namespace distilld {

namespace {

/// As models/serving/ places it.
std::string device_of(const TeacherSpec& teacher, const std::string& student_device) {
    switch (teacher.placement) {
        case TeacherPlacement::rank0:
        case TeacherPlacement::duplicated:
            return student_device;
        case TeacherPlacement::balanced:
            return "auto";
        case TeacherPlacement::cpu:
        case TeacherPlacement::shared:
            break;
    }
    return "cpu";
}

}  // namespace

std::vector<ModelArithmetic> arithmetics_of(JobSpec& spec) {
    std::vector<ModelArithmetic> models;
    models.push_back({"/student/dtype", spec.student.device, &spec.student.dtype});
    for (auto& [name, teacher] : spec.teachers) {
        if (!teacher.model_dir.empty()) {
            models.push_back(
                {teacher_pointer(name) + "/dtype", device_of(teacher, spec.student.device), &teacher.dtype});
        }
    }
    return models;
}

Result<void> settle(ModelArithmetic& model, const DtypeHere& here) {
    if (!model.open()) {
        return {};
    }
    const Result<Dtype> dtype = here(model.device);
    if (!dtype) {
        return dtype.error();
    }
    *model.dtype = *dtype;
    return {};
}

Result<void> settle(JobSpec& spec, const DtypeHere& here) {
    for (ModelArithmetic& model : arithmetics_of(spec)) {
        if (Result<void> settled = settle(model, here); !settled) {
            return settled;
        }
    }
    return {};
}

std::set<std::string> open_arithmetics(JobSpec& spec) {
    std::set<std::string> pointers;
    for (const ModelArithmetic& model : arithmetics_of(spec)) {
        if (model.open()) {
            pointers.insert(model.pointer);
        }
    }
    return pointers;
}

std::vector<std::string> kept_arithmetics(JobSpec& spec, const std::set<std::string>& were_open,
                                          const DtypeHere& here) {
    std::vector<std::string> lines;
    for (const ModelArithmetic& model : arithmetics_of(spec)) {
        const Result<Dtype> anew = here(model.device);
        if (!were_open.contains(model.pointer) || !anew || *anew == *model.dtype) {
            continue;
        }
        std::string field = model.pointer.substr(1);
        std::ranges::replace(field, '/', '.');
        lines.push_back(field + " auto stays " + to_string(*model.dtype) +
                        " as at the start of the run; a new run would use " + to_string(*anew) + " here");
    }
    return lines;
}

}  // namespace distilld
