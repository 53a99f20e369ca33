#include "server/worker/teacher/teacher_vocabulary.hpp"

#include <utility>

#include "pipeline/core/vocabulary_fit.hpp"
#include "pipeline/teacher/fitting_teacher.hpp"

namespace distilld {
namespace {

constexpr const char* kSameTokenizer = "/teacher/require_same_tokenizer";

std::string why_not_compared(const TokenizerSigns& student, const TokenizerSigns& teacher) {
    if (student.name.empty()) {
        return "the data has ids, and the student has no tokenizer";
    }
    if (teacher.hash.empty() && teacher.ids.empty()) {
        return "the teacher does not report its own";
    }
    return "the one of " + student.name + " cannot be read here";
}

/// What happens to the ids that only the teacher has.
std::string what_is_cut(TeacherTargets::Kind kind) {
    switch (kind) {
        case TeacherTargets::Kind::topk:
            return "are dropped from its rows";
        case TeacherTargets::Kind::logits:
            return "are cut from its logits";
        case TeacherTargets::Kind::hidden_states:
        case TeacherTargets::Kind::tensors:
            break;
    }
    return "are cut from its head";
}

std::string sizes(std::uint64_t teacher, std::uint32_t student) {
    return "the teacher knows " + std::to_string(teacher) + " tokens and the student " + std::to_string(student);
}

}  // namespace

Result<void> check_tokenizer(const TeacherSpec& spec, const std::string& name, const TokenizerSigns& student,
                             const TokenizerSigns& teacher, const EmitEvent& emit) {
    switch (compare(student, teacher)) {
        case TokenizersAre::same:
            break;
        case TokenizersAre::not_compared:
            emit(LogEvent{"info", "tokenizers are not compared: " + why_not_compared(student, teacher)});
            break;
        case TokenizersAre::different: {
            const std::string what = "the teacher " + name + " has another tokenizer than the student (" +
                                     student.name + "): the same id stands for different tokens";
            if (spec.require_same_tokenizer) {
                return teacher_error(
                    std::string(kSameTokenizer) + ": " + what +
                    "; use a teacher with the student's tokenizer, or set this field to false if that is intended");
            }
            emit(LogEvent{"warn", what + "; " + kSameTokenizer + " is false"});
            break;
        }
    }
    return {};
}

Result<void> check_vocabulary(const TeacherSpec& spec, const TokenizerSigns& student, std::uint32_t vocabulary,
                              const TeacherInfo& teacher, const EmitEvent& emit) {
    const std::uint64_t known = teacher.vocabulary_size;
    const bool same = !spec.require_same_tokenizer || compare(student, teacher.tokenizer) == TokenizersAre::same;
    if (known > vocabulary) {
        if (!same && known - vocabulary > max_padding(vocabulary)) {
            return teacher_error("/student: " + sizes(known, vocabulary) +
                                 ", which is more than padding, and their tokenizers could not be compared; use a "
                                 "student with the teacher's vocabulary, or name their common tokenizer in "
                                 "/student/tokenizer");
        }
        emit(LogEvent{"info", sizes(known, vocabulary) + ": the " + std::to_string(known - vocabulary) +
                                  " that only the teacher has " + what_is_cut(teacher.kind) +
                                  ", and what is left is renormalised"});
        return {};
    }
    if (student.size > known) {
        return teacher_error("/student: the tokenizer " + student.name + " has ids up to " +
                             std::to_string(student.size - 1) + ", and the teacher knows " + std::to_string(known) +
                             " tokens: it has no logits for the others; use a teacher with the student's tokenizer");
    }
    if (student.size == 0 && vocabulary - known > max_padding(known)) {
        return teacher_error("/student: " + sizes(known, vocabulary) +
                             ", which is more than padding, and no tokenizer says which of them are in use; use a "
                             "student with the teacher's vocabulary, or name its tokenizer in /student/tokenizer");
    }
    emit(LogEvent{"info", sizes(known, vocabulary) + ": the " + std::to_string(vocabulary - known) +
                              " that only the student has count as ones of probability 0"});
    return {};
}

Result<void> compare_tokenizers(ConnectedTeacher& teacher, const TeacherSpec& spec, const StoredData& data,
                                const EmitEvent& emit) {
    if (teacher.info.kind == TeacherTargets::Kind::tensors) {
        return {};
    }
    TokenizerSigns& signs = teacher.info.tokenizer;
    Result<void> same = check_tokenizer(spec, teacher.source->endpoint_name(0), data.tokenizer, signs, emit);
    if (!same) {
        return same;
    }
    if (compare(data.tokenizer, signs) == TokenizersAre::same) {
        signs.hash = data.tokenizer.hash;
    }
    for (const std::string& note : teacher.info.notes) {
        emit(LogEvent{"info", note});
    }
    if (teacher.info.vocabulary_size == 0) {
        teacher.source = make_fitting_teacher(std::move(teacher.source), data.vocabulary, 0);
    }
    return {};
}

Result<ConnectedTeacher> fit_to_student(Result<ConnectedTeacher> teacher, const TeacherSpec& spec,
                                        const StoredData& data, const EmitEvent& emit) {
    const std::uint64_t known = teacher ? teacher->info.vocabulary_size : 0;
    if (known == 0 || known == data.vocabulary) {
        return teacher;
    }
    if (Result<void> checked = check_vocabulary(spec, data.tokenizer, data.vocabulary, teacher->info, emit); !checked) {
        const Error& error = checked.error();
        return Error{error.kind, error.message + " (" + teacher->source->endpoint_name(0) + ")"};
    }
    teacher->source = make_fitting_teacher(std::move(teacher->source), data.vocabulary, known);
    teacher->info = fitted_info(std::move(teacher->info), data.vocabulary);
    return teacher;
}

}  // namespace distilld
