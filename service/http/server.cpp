#include "service/http/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "service/http/gatekeeper.h"
#include "service/http/handlers.h"
#include "service/http/routes.h"
#include "service/http/worker.h"

namespace tandem::service {

struct HttpServer::Impl final : FrontHandler {
  Impl(HttpOptions given, HttpServices used)
      : options(std::move(given)),
        services(used),
        gatekeeper(options, services.authenticator),
        context{options, services, stopping, draining, active_streams},
        inference_queue(options.request_queue_max),
        text_queue(options.request_queue_max),
        stored_queue(options.request_queue_max),
        control_queue(options.request_queue_max),
        front(options.front, *this) {}

  std::variant<Admission, wire::ApiError> check_head(const RequestHead& head) override {
    return gatekeeper.check(head);
  }

  std::optional<wire::ApiError> dispatch(ReadyRequest& request) override {
    const Route& route = routes()[request.admission.route];
    if (queue_of(route.pool).try_push(request)) return std::nullopt;
    wire::ApiError error = wire::api_error(503, "server_busy", "too many requests are waiting");
    error.retry_after_s = 1;
    return error;
  }

  WorkerQueue& queue_of(Pool pool) {
    switch (pool) {
      case Pool::inference:
        return inference_queue;
      case Pool::text:
        return text_queue;
      case Pool::stored:
        return stored_queue;
      case Pool::control:
        break;
    }
    return control_queue;
  }

  std::string render_refusal(const Refusal& refusal) override {
    const std::string id =
        refusal.request_id.empty() ? random_id("req-") : std::string(refusal.request_id);
    Answer answer = error_answer(refusal.error);
    shape_answer(answer, refusal.path, id);
    return render_answer(answer, id, refusal.head_only, refusal.keep_alive, options.front.idle_ms);
  }

  Answer handle(ReadyRequest& request) {
    return answer_of(Exchange(request), routes()[request.admission.route].endpoint);
  }

  Answer answer_of(const Exchange& exchange, Endpoint endpoint) {
    switch (endpoint) {
      case Endpoint::chat:
        return handle_chat(context, exchange);
      case Endpoint::completions:
        return handle_completions(context, exchange);
      case Endpoint::messages:
        return handle_messages(context, exchange);
      case Endpoint::count_tokens:
        return handle_count_tokens(context, exchange);
      case Endpoint::responses:
        return handle_responses(context, exchange);
      case Endpoint::stored_response:
        return handle_stored_response(context, exchange);
      case Endpoint::delete_response:
        return handle_delete_response(context, exchange);
      case Endpoint::models:
        return handle_models(context, exchange);
      case Endpoint::model:
        return handle_model(context, exchange);
      case Endpoint::tokenize:
        return handle_tokenize(context, exchange);
      case Endpoint::detokenize:
        return handle_detokenize(context, exchange);
      case Endpoint::alive:
        return handle_alive();
      case Endpoint::ready:
        return handle_ready(context);
      case Endpoint::metrics:
        return handle_metrics(context);
      case Endpoint::root:
        return handle_root();
    }
    return error_answer(wire::api_error(500, "internal_error", "this route has no handler"));
  }

  void start_workers(WorkerQueue& queue, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      workers.push_back(std::make_unique<Worker>(
          WorkerSetup{.queue = queue,
                      .front = front,
                      .handle = [this](ReadyRequest& request) { return handle(request); },
                      .stopping = stopping,
                      .write_stall_ms = options.write_stall_ms,
                      .idle_ms = options.front.idle_ms}));
    }
  }

  void register_metrics() {
    Metrics& metrics = services.metrics;
    Gauge& connections = metrics.gauge("tandem_http_connections", "Open client connections.");
    Gauge& streams = metrics.gauge("tandem_http_active_streams", "Answers that are being made.");
    Gauge& streams_max = metrics.gauge("tandem_http_streams_max", "Answers that may be made.");
    Gauge& waiting =
        metrics.gauge("tandem_http_requests_waiting", "Complete requests that wait for a worker.");
    Gauge& buffered = metrics.gauge("tandem_http_buffered_bytes", "Bodies held in memory.");
    Counter& accepted = metrics.counter("tandem_http_connections_total", "Accepted connections.");
    Counter& refused =
        metrics.counter("tandem_http_refused_total", "Requests refused before a handler saw them.");
    Counter& evicted =
        metrics.counter("tandem_http_evicted_total", "Idle connections closed to make room.");
    Counter& timed_out =
        metrics.counter("tandem_http_timed_out_total", "Requests that did not arrive in time.");
    metrics.on_render([&, this] {
      const Front::Counters& now = front.counters();
      connections.set(static_cast<double>(now.connections.load()));
      streams.set(static_cast<double>(active_streams.load()));
      streams_max.set(static_cast<double>(options.streams_max));
      waiting.set(static_cast<double>(inference_queue.waiting() + text_queue.waiting() +
                                      stored_queue.waiting() + control_queue.waiting()));
      buffered.set(static_cast<double>(now.buffered_bytes.load()));
      accepted.set_total(now.accepted.load());
      refused.set_total(now.refused.load());
      evicted.set_total(now.evicted.load());
      timed_out.set_total(now.timed_out.load());
    });
  }

  const HttpOptions options;
  const HttpServices services;
  std::atomic<bool> stopping{false};
  std::atomic<bool> draining{false};
  std::atomic<int64_t> active_streams{0};
  const Gatekeeper gatekeeper;
  const HandlerContext context;
  WorkerQueue inference_queue;
  WorkerQueue text_queue;
  WorkerQueue stored_queue;
  WorkerQueue control_queue;
  Front front;
  std::vector<std::unique_ptr<Worker>> workers;  // first to go
};

HttpServer::HttpServer(HttpOptions options, HttpServices services)
    : impl_(std::make_unique<Impl>(std::move(options), services)) {
  impl_->register_metrics();
}

HttpServer::~HttpServer() { stop(); }

Result<void> HttpServer::start(std::vector<Fd> listeners) {
  impl_->start_workers(impl_->control_queue, impl_->options.control_workers);
  impl_->start_workers(impl_->text_queue, impl_->options.text_workers);
  impl_->start_workers(impl_->stored_queue, impl_->options.stored_workers);
  impl_->start_workers(impl_->inference_queue,
                       impl_->options.streams_max + impl_->options.stream_headroom);
  return impl_->front.start(std::move(listeners));
}

void HttpServer::begin_drain() { impl_->draining.store(true); }

size_t HttpServer::active() const { return impl_->inference_queue.in_hand(); }

void HttpServer::stop() {
  impl_->draining.store(true);
  impl_->front.stop_accepting();
  impl_->stopping.store(true);
  impl_->inference_queue.close();
  impl_->text_queue.close();
  impl_->stored_queue.close();
  impl_->control_queue.close();
  impl_->workers.clear();
  impl_->front.stop();
}

const Front::Counters& HttpServer::front_counters() const { return impl_->front.counters(); }

Result<Fd> listen_tcp(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string service = std::to_string(port);
  if (const int code = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list); code != 0) {
    return make_error(Errc::invalid_argument,
                      "listen address \"" + host + "\": " + ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  Fd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(Errc::io, "listening socket", errno);
  const int one = 1;
  const std::string where = host + " port " + service;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
      ::bind(socket.get(), list->ai_addr, list->ai_addrlen) < 0 ||
      ::listen(socket.get(), SOMAXCONN) < 0) {
    return errno_error(Errc::io, "cannot listen on " + where, errno);
  }
  return socket;
}

bool bound_to_loopback(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) < 0) return false;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
  }
  return address.ss_family == AF_UNIX;
}

Result<uint16_t> bound_port(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) < 0) {
    return errno_error(Errc::io, "getsockname", errno);
  }
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return make_error(Errc::invalid_argument, "the listener has no port");
}

}  // namespace tandem::service
