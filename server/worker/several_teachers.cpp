#include "server/worker/several_teachers.hpp"

#include <utility>
#include <variant>

#include "base/join.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "server/worker/teacher_connection.hpp"
#include "server/worker/teacher_targets.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

std::string in_words_of(const std::string& name, std::string text) {
    return "teacher " + name + ": " + of_named_teacher(std::move(text), name);
}

/// What is said of the connection of one names it.
EmitEvent named_events(const std::string& name, const EmitEvent& emit) {
    return [name, emit](const WorkerEvent& event) {
        if (const auto* log = std::get_if<LogEvent>(&event)) {
            emit(LogEvent{log->level, in_words_of(name, log->message)});
        } else if (const auto* waiting = std::get_if<WaitingEvent>(&event); waiting && !waiting->message.empty()) {
            emit(WaitingEvent{waiting->code, in_words_of(name, waiting->message), waiting->since});
        } else {
            emit(event);
        }
    };
}

/// Rows of all teachers lie in one array.
Result<void> check_alike(const std::vector<NamedTeacher>& teachers) {
    const NamedTeacher& first = teachers.front();
    for (const NamedTeacher& other : teachers) {
        const std::string pointer = "/teachers/" + other.name;
        if (other.info.kind != first.info.kind) {
            return invalid_input(pointer + "/targets: the teacher sends " + to_string(choice_of(other.info.kind)) +
                                 ", " + first.name + " sends " + to_string(choice_of(first.info.kind)) +
                                 ": those of one job send the same");
        }
        if (other.info.width != first.info.width) {
            return invalid_input(pointer + "/top_k: the teacher sends " + std::to_string(other.info.width) +
                                 " values a position, " + first.name + " sends " + std::to_string(first.info.width) +
                                 ": those of one job send as many");
        }
    }
    return {};
}

}  // namespace

asio::awaitable<Result<std::vector<NamedTeacher>>> connect_teachers(TeachersWish wish, GraphExecutors executors,
                                                                    RunControl& control, EmitEvent emit) {
    std::vector<NamedTeacher> teachers;
    for (const DatasetPart& part : wish.dataset->parts()) {
        TeacherWish one;
        one.spec = wish.specs.at(part.teacher);
        if (one.spec.targets == TargetsChoice::automatic && one.spec.top_k == 0) {
            one.spec.targets = TargetsChoice::logits;  // the student holds the head of one teacher only
        }
        one.batch_rows = wish.batch_rows;
        one.data = wish.data;
        one.data.dataset = part.rows.get();
        one.load_model = wish.load_model;
        Result<ConnectedTeacher> connected =
            co_await connect_teacher(std::move(one), executors, control, named_events(part.teacher, emit));
        if (!connected && connected.error().kind == ErrorKind::cancelled) {
            co_return connected.error();
        }
        if (!connected) {
            co_return Error{connected.error().kind, in_words_of(part.teacher, connected.error().message)};
        }
        teachers.push_back({part.teacher, std::move(connected->source), std::move(connected->info), connected->asked,
                            connected->asked_in_need});
    }
    if (Result<void> alike = check_alike(teachers); !alike) {
        co_return alike.error();
    }
    co_return teachers;
}

std::string description_of(const std::vector<NamedTeacher>& teachers) {
    const auto text_of = [](const NamedTeacher& teacher) { return teacher.name + ": " + teacher.info.description; };
    return joined(teachers, "; ", text_of);
}

std::vector<GraphTeacher> graph_teachers(const std::vector<NamedTeacher>& teachers, const JobSpec& spec,
                                         std::uint32_t decode_threads) {
    std::vector<GraphTeacher> made;
    for (const NamedTeacher& teacher : teachers) {
        made.push_back({teacher.name, teacher.source.get(),
                        teacher_stage_options(spec.teachers.at(teacher.name), *teacher.source, teacher.info,
                                              spec.training.batch_size, spec.dataset.sequence_length, decode_threads)});
    }
    return made;
}

}  // namespace distilld
