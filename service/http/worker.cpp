#include "service/http/worker.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>

#include "base/log.h"
#include "service/http/httplib_compat.h"

namespace tandem::service {
namespace {

constexpr int kPollSliceMs = 50;

Answer internal_error() {
  return error_answer(wire::api_error(500, "internal_error", "the request failed inside tandemd"));
}

void fill_headers(const Answer& answer, const ReadyRequest& request, httplib::Response& response) {
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  response.set_header("x-request-id", request.admission.request_id);
  const std::string_view theirs = client_request_id(request.head);
  if (!theirs.empty()) response.set_header("x-client-request-id", std::string(theirs));
  response.set_header("Cache-Control", "no-store");
}

// Writes to a non-blocking socket; false for good once the client is gone or stalls.
class SocketStream final : public TextStream {
 public:
  SocketStream(int socket, int64_t stall_ms, const std::atomic<bool>& stopping)
      : socket_(socket), stall_ms_(stall_ms), stopping_(stopping) {}

  [[nodiscard]] bool alive() const override { return alive_; }
  socket_t socket() const override { return socket_; }

  bool send(const char* data, size_t size) override {
    SteadyTime last_progress = std::chrono::steady_clock::now();
    size_t done = 0;
    while (alive_ && done < size) {
      const ssize_t count = ::send(socket_, data + done, size - done, MSG_NOSIGNAL);
      if (count > 0) {
        done += static_cast<size_t>(count);
        last_progress = std::chrono::steady_clock::now();
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        const auto waited = std::chrono::steady_clock::now() - last_progress;
        alive_ = waited < std::chrono::milliseconds(stall_ms_) && wait();
      } else {
        alive_ = false;
      }
    }
    return alive_;
  }

 private:
  bool wait() const {
    pollfd descriptor{.fd = socket_, .events = POLLOUT | POLLRDHUP, .revents = 0};
    if (::poll(&descriptor, 1, kPollSliceMs) < 0) return errno == EINTR;
    if ((descriptor.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return false;
    return !stopping_.load(std::memory_order_relaxed);
  }

  int socket_;
  int64_t stall_ms_;
  const std::atomic<bool>& stopping_;
  bool alive_ = true;
};

}  // namespace

class Worker::Session {
 public:
  explicit Session(WorkerSetup setup) : setup_(std::move(setup)) {
    server_.set_keep_alive_timeout(static_cast<time_t>(setup_.idle_ms / 1000));
    server_.set_pre_routing_handler([this](const httplib::Request&, httplib::Response& response) {
      respond(response);
      return httplib::Server::HandlerResponse::Handled;
    });
    // Neither is reached while respond() keeps its promises; the library's own versions would leak
    // the exception's text and send an empty body.
    server_.set_exception_handler(
        [this](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          fail(response);
        });
    server_.set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty() && !response.has_header("x-request-id")) {
        fail(response);
      }
    });
  }

  void run() {
    while (auto request = setup_.queue.pop(seat_)) serve(*request);
  }

 private:
  void serve(ReadyRequest& request) {
    request_ = &request;
    answer_ = {};
    aborted_ = false;
    answer_ = handle();
    shape(answer_);
    bool keep_open = false;
    bool linger = false;
    if (!answer_.abandoned) {
      SocketStream stream(request.socket.get(), setup_.write_stall_ms, setup_.stopping);
      stream_ = &stream;
      const bool keep_alive =
          request.head.keep_alive && !setup_.stopping.load(std::memory_order_relaxed);
      const bool head_only = request.head.method == "HEAD";
      stream.load(std::string(head_only ? "HEAD" : "GET") + " / HTTP/1." +
                  std::to_string(request.head.version_minor) + "\r\nHost: tandem\r\n\r\n");
      const bool written = server_.process(stream, !keep_alive);
      keep_open = written && keep_alive && stream.alive() && !aborted_;
      linger = stream.alive();
      stream_ = nullptr;
    }
    answer_ = {};
    request_ = nullptr;
    if (keep_open) {
      setup_.front.give_back(std::move(request.socket), std::move(request.peer_address),
                             std::move(request.pipelined));
    } else if (linger) {
      setup_.front.finish(std::move(request.socket), std::move(request.peer_address));
    } else {
      request.socket.reset();
      setup_.front.connection_closed(std::move(request.peer_address));
    }
  }

  // The fence of the handler side: whatever escapes becomes a 500.
  Answer handle() {
    try {
      return setup_.handle(*request_);
    } catch (const std::exception& exception) {
      log::error(std::string("http: a handler threw: ") + exception.what());
    } catch (...) {
      log::error("http: a handler threw");
    }
    return internal_error();
  }

  void shape(Answer& answer) const {
    shape_answer(answer, request_->head.path, request_->admission.request_id);
  }

  void fail(httplib::Response& response) {
    answer_ = internal_error();
    shape(answer_);
    fill(response);
  }

  void respond(httplib::Response& response) {
    if (answer_.stream == nullptr) {
      fill(response);
      return;
    }
    response.status = answer_.status;
    fill_headers(answer_, *request_, response);
    response.set_header("X-Accel-Buffering", "no");
    auto provider = [this](size_t, httplib::DataSink& sink) { return pull(sink); };
    if (request_->head.version_minor == 0) {
      response.set_content_provider(answer_.content_type, provider);
    } else {
      response.set_chunked_content_provider(answer_.content_type, provider);
    }
  }

  void fill(httplib::Response& response) {
    response.status = answer_.status;
    fill_headers(answer_, *request_, response);
    response.set_content(answer_.body, answer_.content_type);
  }

  // An exception that left a content provider would end the process.
  bool pull(httplib::DataSink& sink) {
    try {
      const StreamWriter write = [&sink](std::string_view bytes) {
        return sink.write(bytes.data(), bytes.size());
      };
      const StreamWriter raw = [this](std::string_view bytes) { return stream_->send(bytes.data(), bytes.size()); };
      switch (answer_.stream->next(write, raw)) {
        case StreamSource::Next::more:
          return true;
        case StreamSource::Next::done:
          sink.done();
          return true;
        case StreamSource::Next::abort:
          break;
      }
    } catch (const std::exception& exception) {
      log::error(std::string("http: a stream threw: ") + exception.what());
    } catch (...) {
      log::error("http: a stream threw");
    }
    aborted_ = true;
    return false;
  }

  WorkerSetup setup_;
  StreamServer server_;
  WorkerQueue::Seat seat_;
  ReadyRequest* request_ = nullptr;
  SocketStream* stream_ = nullptr;  // while one is answered
  Answer answer_;
  bool aborted_ = false;
};

Worker::Worker(WorkerSetup setup)
    : session_(std::make_unique<Session>(std::move(setup))),
      thread_([session = session_.get()] { session->run(); }) {}

Worker::~Worker() = default;

}  // namespace tandem::service
