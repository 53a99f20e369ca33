#include "server/worker/teacher/teacher_vocabulary.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdint>
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

/// With teacher.tokenizer, answers are mapped instead (MappedRows).
Result<void> check_other_tokens(const TeacherInfo& teacher, const TokenizerSigns& tokenizer) {
    if (teacher.kind != TeacherTargets::Kind::topk) {
        return invalid_input("/teacher/tokenizer: takes top-k rows, and this teacher sends none: set /teacher/top_k");
    }
    if (teacher.vocabulary_size != 0 && tokenizer.size > teacher.vocabulary_size) {
        return invalid_input("/teacher/tokenizer: " + tokenizer.name + " has ids up to " +
                             std::to_string(tokenizer.size - 1) + ", and the teacher knows " +
                             std::to_string(teacher.vocabulary_size) + " tokens: name the folder of its own tokenizer");
    }
    return {};
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
            const bool own = !spec.tokenizer.empty();
            const std::string what = "the teacher " + name + " has another tokenizer than " +
                                     (own ? "/teacher/tokenizer (" : "the student (") + student.name +
                                     "): the same id stands for different tokens";
            if (spec.require_same_tokenizer) {
                return teacher_error(
                    std::string(kSameTokenizer) + ": " + what +
                    (own ? "; name the folder of the teacher's own tokenizer there"
                         : "; use a teacher with the student's tokenizer, name the folder of the teacher's in "
                           "/teacher/tokenizer, or set this field to false if that is intended"));
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

OnAlignment telling_of_alignment(boost::asio::any_io_executor io, EmitEvent emit) {
    return [io = std::move(io), emit = std::move(emit)](const AlignmentCounters& counters) {
        const auto percent = [](double share) {
            const std::string text = std::to_string(100 * share);
            return text.substr(0, text.find('.') + 2) + "%";
        };
        const double aligned =
            static_cast<double>(counters.aligned) / static_cast<double>(std::max<std::uint64_t>(1, counters.positions));
        const std::string text = "the teacher has read the same bytes at " + std::to_string(counters.aligned) + " of " +
                                 std::to_string(counters.positions) + " positions (" + percent(aligned) +
                                 ") of the first micro-batch, the others carry no loss; there it names tokens of the "
                                 "student with " +
                                 percent(counters.mapped_mass) + " of its probability, the rest goes to the tail";
        boost::asio::post(io, [emit, text] { emit(LogEvent{"info", text}); });
    };
}

Result<ConnectedTeacher> fit_to_student(Result<ConnectedTeacher> teacher, const TeacherSpec& spec,
                                        const StoredData& data, const EmitEvent& emit) {
    const std::uint64_t known = teacher ? teacher->info.vocabulary_size : 0;
    if (teacher && data.alignment) {
        const Result<void> checked = check_other_tokens(teacher->info, data.tokenizer);
        return checked ? std::move(teacher)
                       : invalid_input(checked.error().message + " (" + teacher->source->endpoint_name(0) + ")");
    }
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
