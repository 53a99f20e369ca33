#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <utility>

#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Whose turn it is to ask the teacher: the training's, or an evaluation's, which then has all of its limit. So there
/// are never more requests in flight than the limit allows, whoever makes them. All calls on the graph's executor.
class TeacherTurn {
  public:
    /// The stage that asks for the training; null: nobody does, any more or yet.
    void set_training(TeacherStage* stage) noexcept { training_ = stage; }

    /// Holds the training's requests back, and waits for those under way, which end by their own deadlines. At once
    /// where that has been done.
    boost::asio::awaitable<void> take() {
        if (training_ != nullptr) {
            training_->set_held(true);
            co_await training_->requests_ended();
        }
    }

    /// The training goes on.
    void give_back() {
        if (training_ != nullptr) {
            training_->set_held(false);
        }
    }

  private:
    TeacherStage* training_ = nullptr;
};

/// The training's own teacher, for an evaluation's fetches: each takes the turn before it is made. Both outlive it.
/// What `teacher` counts and closes is the training's matter.
[[nodiscard]] std::unique_ptr<TeacherSource> make_turn_taking_teacher(TeacherSource& teacher, TeacherTurn& turn);

}  // namespace distilld
